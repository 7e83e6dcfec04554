// Makes a checkpoint file of arbitrary bytes one whose checksums are right, so that a reader believes the rest; and
// changes a header as JSON rather than as bytes. Knows the format from docs/checkpoint_format.md alone.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>

namespace levin::fuzz {

/// The header's length fits and its checksum is right.
[[nodiscard]] bool is_trusted(std::string_view file);

/// Puts the mark in place, makes the length fit and repairs the header's checksum; with `tensors_too` also those of the
/// tensors whose place lies within the data.
void trust(std::string& file, bool tensors_too);

/// Changes bytes of a text, which may grow to so many bytes.
using MutateBytes = std::function<void(std::string& text, size_t most)>;

/// Changes bytes of the data alone.
void change_data(std::string& file, const MutateBytes& mutate_bytes);

/// One to three changes to the header's JSON (a dtype, a size, an offset, an entry more or less) or to the values in
/// it; false if the header is no JSON. The checksum is wrong then.
bool change_header(std::string& file, std::minstd_rand& random, const MutateBytes& mutate_bytes);

}  // namespace levin::fuzz
