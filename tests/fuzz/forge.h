// Makes a checkpoint file of arbitrary bytes one whose checksums are right, so that a reader believes the rest; and
// changes a header as JSON rather than as bytes. Knows the format from docs/checkpoint_format.md alone.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>

namespace levin::fuzz {

/// Returns true if the header's length fits and its checksum is right.
[[nodiscard]] bool is_trusted(std::string_view file);

/// Puts the mark in place, makes the length fit and repairs the header's checksum; with `tensors_too` also the
/// checksums of the tensors that lie within the data.
void trust(std::string& file, bool tensors_too);

/// Changes bytes of `text`, which may grow to `max_bytes`.
using MutateBytes = std::function<void(std::string& text, size_t max_bytes)>;

/// Changes bytes of the data alone.
void change_data(std::string& file, const MutateBytes& mutate_bytes);

/// One to three changes to the header's JSON (a dtype, a size, an offset, an entry more or less) or to the values in
/// it; false if the header is not JSON. The checksum is wrong afterwards.
bool change_header(std::string& file, std::minstd_rand& random, const MutateBytes& mutate_bytes);

}  // namespace levin::fuzz
