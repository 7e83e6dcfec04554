#include "levin/checkpoint/safetensors_entry.h"

#include <algorithm>
#include <array>
#include <utility>

namespace levin {

namespace {

constexpr std::array kDTypes{std::pair{"F64", at::kDouble},
                             std::pair{"F32", at::kFloat},
                             std::pair{"F16", at::kHalf},
                             std::pair{"BF16", at::kBFloat16},
                             std::pair{"F8_E4M3", at::kFloat8_e4m3fn},
                             std::pair{"F8_E5M2", at::kFloat8_e5m2},
                             std::pair{"F8_E8M0", at::kFloat8_e8m0fnu},
                             std::pair{"C64", at::kComplexFloat},
                             std::pair{"I64", at::kLong},
                             std::pair{"I32", at::kInt},
                             std::pair{"I16", at::kShort},
                             std::pair{"I8", at::kChar},
                             std::pair{"U64", at::kUInt64},
                             std::pair{"U32", at::kUInt32},
                             std::pair{"U16", at::kUInt16},
                             std::pair{"U8", at::kByte},
                             std::pair{"BOOL", at::kBool}};

}  // namespace

const char* safetensors_dtype(at::ScalarType type) {
  for (const auto& [word, known] : kDTypes) {
    if (known == type) return word;
  }
  return nullptr;
}

bool find_safetensors_dtype(std::string_view word, at::ScalarType& type) {
  const auto* const found =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& known) { return word == known.first; });
  if (found == kDTypes.end()) return false;
  type = found->second;
  return true;
}

}  // namespace levin
