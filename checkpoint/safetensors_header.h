// The JSON header of a safetensors file, read in one pass: only the entries are kept, so a header costs a small
// multiple of its size in memory, and time in proportion to it, even if it is malicious.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace levin {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // as in every program that reads them

/// One tensor's entry in the header: its type, shape and position in the file.
struct SafetensorsEntry {
  std::string name = "";
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape = {};
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;

  [[nodiscard]] uint64_t bytes() const { return end - begin; }
};

/// Returns the format's word for a type ("BF16"); null if it has none.
[[nodiscard]] const char* safetensors_dtype(at::ScalarType type);
/// Sets `type` to the type that the format calls `word`. Returns false if there is none.
[[nodiscard]] bool find_safetensors_dtype(std::string_view word, at::ScalarType& type);

/// Limit for tensors, and for strings in the metadata. Levin's own headers hold 100 MB with half as many.
inline constexpr size_t kMaxSafetensorsEntries = 1'000'000;

/// A parsed header: the tensors' entries, and the strings of its metadata.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries = {};  // in the order of their data; offsets from the start of the data
  std::map<std::string, std::string> metadata = {};
};

/// `data_bytes`: the bytes after the header in the file; the entries fill it without gap or overlap. Throws
/// CheckpointError with what is wrong.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes);

}  // namespace levin
