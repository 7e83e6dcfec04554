#include "levin/trainer/run/failed_place.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <typeinfo>

#include "levin/core/options/registry.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

std::string failed_place(const Run& run) {
  const EntryPoint& entry = run.entry;
  const bool evaluates = entry.phase != Phase::train && entry.phase != Phase::idle;
  const bool fits = entry.stage == Stage::fit;
  const Hook hook = entry.failed_hook.value_or(entry.place.hook);
  // Between two hooks the error is the run's own.
  std::string text = hook == Hook::none && entry.stage ? enum_name(*entry.stage) : hook_name(hook);
  const auto add = [&](const char* what, int64_t number) { text += what + std::to_string(number); };
  if (entry.sanity_checking) text += ", sanity check";
  if (entry.phase == Phase::idle) return text;  // nothing has been trained or evaluated
  if (fits) add(", epoch ", run.progress.epoch);
  const int64_t batch = evaluates ? entry.eval_batch_idx : run.fit.epoch.batch_idx;
  if (batch >= 0) add(", batch ", batch);
  if (evaluates && entry.place.dataloader_idx >= 0) add(", dataloader ", entry.place.dataloader_idx);
  if (fits) add(", global step ", run.progress.global_step);
  return text;
}

std::string calling_hook(const EntryPoint& entry) {
  const std::string hook = hook_name(entry.place.hook);
  if (entry.place.hook == Hook::none) return hook;
  if (entry.caller != nullptr) return hook + " of " + detail::readable_type_name(*entry.caller);
  const LightningModule& module = *entry.module;
  return hook + " of " + detail::readable_type_name(typeid(module));
}

namespace {

// Parts of messages of losses, embeddings, one_hot, gather and scatter, and indexing.
constexpr std::array<std::string_view, 6> kWantIntegers{"expected scalar type Long",
                                                        "expected target dtype to be Long",
                                                        "scalar types: Long, Int",
                                                        "tensor of type LongTensor",
                                                        "for index",
                                                        "used as indices must be long"};
constexpr std::array<std::string_view, 4> kWantBools{"expected scalar type Bool", "boolean masks",
                                                     "BoolTensor for mask", "to be a boolean tensor"};
// Errors of losses, layers, normalizations, activations and statistics.
constexpr std::array<std::string_view, 15> kWantFloats{"expected scalar type",
                                                       "Found dtype",
                                                       "expected dtype float",
                                                       "have the same dtype",
                                                       "should be the same",
                                                       "share same datatype",
                                                       "be cast to the desired output type",
                                                       "two bool tensors is not supported",
                                                       "not implemented for 'Long'",
                                                       "not implemented for 'Int'",
                                                       "not implemented for 'Byte'",
                                                       "Integral inputs not supported",
                                                       "xpected floating point type",
                                                       "floating point or complex",
                                                       "floating point and complex"};

template <size_t N>
bool has_one_of(const std::string& text, const std::array<std::string_view, N>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

}  // namespace

std::string type_remedy(const std::string& text, const std::string& about_floats) {
  const std::string end = text.ends_with('.') ? " " : ". ";
  if (has_one_of(text, kWantIntegers)) {
    return end +
           "Class indices, token ids and indices are int64: give them so in the data (CsvData: target_is_class), or "
           "convert them before the call, e.g. batch[1].to(torch::kLong).";
  }
  if (has_one_of(text, kWantBools)) {
    return end +
           "Masks and conditions are bool: convert them before the call, e.g. mask.to(torch::kBool) or mask != 0.";
  }
  if (has_one_of(text, kWantFloats)) {
    if (!about_floats.empty()) return end + about_floats;
    return end +
           "Inputs and targets must have the type of the weights: give them so in the data, convert them before the "
           "call, e.g. batch[1].to(torch::kFloat), or choose the weights' type with TrainerOptions.precision.";
  }
  return "";
}

}  // namespace levin
