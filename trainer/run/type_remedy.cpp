#include "levin/trainer/run/type_remedy.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace levin {

namespace {

// Parts of messages of losses, embeddings, one_hot, gather and scatter, and indexing.
constexpr std::array<std::string_view, 5> kWantIntegers{"expected scalar type Long", "scalar types: Long, Int",
                                                        "tensor of type LongTensor", "for index",
                                                        "used as indices must be long"};
constexpr std::array<std::string_view, 4> kWantFloats{"expected scalar type Float", "but expected Float",
                                                      "have the same dtype", "should be the same"};

template <size_t N>
bool has_one_of(const std::string& text, const std::array<std::string_view, N>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

}  // namespace

std::string type_remedy(const std::string& text) {
  const std::string end = text.ends_with('.') ? " " : ". ";
  if (has_one_of(text, kWantIntegers)) {
    return end +
           "Class indices, token ids and indices are int64: give them so in the data (CsvData: target_is_class), or "
           "convert them before the call, e.g. batch[1].to(torch::kLong).";
  }
  if (has_one_of(text, kWantFloats)) {
    return end +
           "Inputs and targets must have the type of the weights: give them so in the data, convert them before the "
           "call, e.g. batch[0].to(torch::kFloat), or choose the weights' type with TrainerOptions.precision.";
  }
  return "";
}

}  // namespace levin
