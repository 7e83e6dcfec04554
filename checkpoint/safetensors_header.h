// The JSON header of a safetensors file, read in one pass: only the entries are kept, so a header costs a small
// multiple of its size in memory, and time in proportion to it, even if it is malicious.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "levin/checkpoint/safetensors_entry.h"

namespace levin {

/// Of tensors, and of texts in the metadata. Levin's own headers hold 100 MB with half as many.
inline constexpr size_t kMaxSafetensorsEntries = 1'000'000;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries = {};  // in the order of their data; offsets from the start of the data
  std::map<std::string, std::string> metadata = {};
};

/// `data_bytes`: the bytes after the header in the file; the entries fill it without gap or overlap. Throws
/// CheckpointError with what is wrong.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes);

}  // namespace levin
