// One tensor of a safetensors file, and the format's words for types.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace levin {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // as in every program that reads them

/// The header's entry of one tensor.
struct SafetensorsEntry {
  std::string name = "";
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape = {};
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;

  [[nodiscard]] uint64_t bytes() const { return end - begin; }
};

/// The format's word for a type ("BF16"); null if it has none.
[[nodiscard]] const char* safetensors_dtype(at::ScalarType type);
/// A type by the format's word for it; false if there is none.
[[nodiscard]] bool find_safetensors_dtype(std::string_view word, at::ScalarType& type);

}  // namespace levin
