#include "levin/metrics/segmentation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/nanmean.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/metrics/label_loops.h"
#include "levin/metrics/pair_batch.h"

namespace levin::metrics {

namespace {

bool holds_classes(const at::Tensor& mask) {
  return at::isIntegralType(mask.scalar_type(), /*includeBool=*/true);
}

[[noreturn]] void refuse_masks(const MaskSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  const std::string count = std::to_string(spec.classes);
  const std::string one_hot = "(N, C, ...) with C = num_classes = " + count;
  const std::string wanted =
      spec.format == MaskFormat::one_hot ? "Give both as " + one_hot + ", or set .input_format to index or mixed."
      : spec.format == MaskFormat::index ? "Give both as (N, ...), integers."
                                         : "Give one as " + one_hot + " and the other as (N, ...), integers.";
  throw Error(spec.metric + ": preds has the shape " + shape_of(preds) + " and target " + shape_of(target) + ". " +
              wanted);
}

// Whether `mask` is (N, C, ...) rather than (N, ...), where `other` is the second mask.
bool has_class_dimension(const MaskSpec& spec, const at::Tensor& mask, const at::Tensor& other) {
  if (spec.format == MaskFormat::mixed) return mask.dim() == other.dim() + 1;
  return spec.format == MaskFormat::one_hot;
}

void check_masks(const MaskSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  const bool p = has_class_dimension(spec, preds, target);
  const bool t = has_class_dimension(spec, target, preds);
  const auto fits = [&](const at::Tensor& mask, bool has_classes) {
    return has_classes ? mask.dim() >= 3 && mask.size(1) == spec.classes : mask.dim() >= 2 && holds_classes(mask);
  };
  const auto positions = [](const at::Tensor& mask, bool has_classes) {
    std::vector<int64_t> sizes = mask.sizes().vec();
    if (has_classes) sizes.erase(sizes.begin() + 1);
    return sizes;
  };
  const bool both_fit = fits(preds, p) && fits(target, t) && (spec.format != MaskFormat::mixed || p != t);
  if (!both_fit || positions(preds, p) != positions(target, t)) refuse_masks(spec, preds, target);
  check_same_device(spec.metric, preds, target);
}

// Classes (N, S) of scores (N, C, S) on the CPU.
at::Tensor highest_classes(const at::Tensor& scores) {
  if (scores.scalar_type() != at::kFloat || !scores.is_contiguous()) return at::argmax(scores, 1);
  const int64_t samples = scores.size(0), classes = scores.size(1), positions = scores.size(2);
  at::Tensor found = at::empty({samples, positions}, at::kLong);
  constexpr int64_t most = 256;  // columns at a time
  for (int64_t n = 0; n < samples; ++n) {
    for (int64_t first = 0; first < positions; first += most) {
      highest_of_columns(scores.const_data_ptr<float>() + n * classes * positions + first, classes, positions,
                         std::min(most, positions - first), found.mutable_data_ptr<int64_t>() + n * positions + first);
    }
  }
  return found;
}

void check_classes(const MaskSpec& spec, const char* where, const at::Tensor& classes) {
  const int64_t* given = classes.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < classes.numel(); ++i) {
    if (given[i] >= 0 && given[i] < spec.classes) continue;
    throw Error(spec.metric + ": " + where + " has the class " + std::to_string(given[i]) + " at index " +
                std::to_string(i) + " (flattened). Classes are 0 to " + std::to_string(spec.classes - 1) +
                ", as num_classes is " + std::to_string(spec.classes) + ".");
  }
}

// A mask on the CPU: classes (N, S), or integers (N, C, S) that may be 1 for several classes.
struct MaskValues {
  at::Tensor values;
  bool is_index = true;
};

MaskValues read_mask(const MaskSpec& spec, const char* where, const at::Tensor& given, bool has_classes) {
  const int64_t samples = given.size(0);
  if (!has_classes) {
    MaskValues mask{given.to(at::kLong).reshape({samples, -1}).contiguous(), true};
    check_classes(spec, where, mask.values);
    return mask;
  }
  const at::Tensor flat = given.reshape({samples, spec.classes, -1});
  if (holds_classes(given)) return {flat.to(at::kLong).contiguous(), false};
  return {highest_classes(flat), true};
}

at::Tensor one_hot(const MaskSpec& spec, const at::Tensor& classes) {
  const at::Tensor all = at::arange(spec.classes, classes.options()).view({1, spec.classes, 1});
  return classes.unsqueeze(1).eq(all).to(at::kLong);
}

// Pixels of each class in both masks, in preds and in target: each (N, counted classes), int64, on the masks' device.
struct MaskCounts {
  at::Tensor both;
  at::Tensor preds;
  at::Tensor target;
};

MaskCounts count_indices(const MaskSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  const int64_t samples = preds.size(0), positions = preds.size(1);
  MaskCounts counts{at::zeros({samples, spec.classes}, at::kLong), at::zeros({samples, spec.classes}, at::kLong),
                    at::zeros({samples, spec.classes}, at::kLong)};
  const int64_t* p = preds.const_data_ptr<int64_t>();
  const int64_t* t = target.const_data_ptr<int64_t>();
  for (int64_t n = 0; n < samples; ++n) {
    int64_t* both = counts.both.mutable_data_ptr<int64_t>() + n * spec.classes;
    int64_t* predicted = counts.preds.mutable_data_ptr<int64_t>() + n * spec.classes;
    int64_t* truth = counts.target.mutable_data_ptr<int64_t>() + n * spec.classes;
    for (int64_t i = n * positions; i < (n + 1) * positions; ++i) {
      ++predicted[p[i]];
      ++truth[t[i]];
      both[p[i]] += p[i] == t[i] ? 1 : 0;
    }
  }
  return counts;
}

MaskCounts count_one_hot(const at::Tensor& preds, const at::Tensor& target) {
  const int64_t rows = preds.size(0) * preds.size(1), positions = preds.size(2);
  MaskCounts counts{at::empty(preds.sizes().slice(0, 2), at::kLong), at::empty(preds.sizes().slice(0, 2), at::kLong),
                    at::empty(preds.sizes().slice(0, 2), at::kLong)};
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t* p = preds.const_data_ptr<int64_t>() + r * positions;
    const int64_t* t = target.const_data_ptr<int64_t>() + r * positions;
    int64_t both = 0, predicted = 0, truth = 0;
    for (int64_t i = 0; i < positions; ++i) {
      both += p[i] * t[i];
      predicted += p[i];
      truth += t[i];
    }
    counts.both.mutable_data_ptr<int64_t>()[r] = both;
    counts.preds.mutable_data_ptr<int64_t>()[r] = predicted;
    counts.target.mutable_data_ptr<int64_t>()[r] = truth;
  }
  return counts;
}

MaskCounts count_on_device(const MaskSpec& spec, const at::Tensor& preds, const at::Tensor& target, bool p, bool t) {
  const auto hot = [&](const at::Tensor& given, bool has_classes) {
    const int64_t samples = given.size(0);
    if (!has_classes) return one_hot(spec, given.to(at::kLong).reshape({samples, -1}));
    const at::Tensor flat = given.reshape({samples, spec.classes, -1});
    return holds_classes(given) ? flat.to(at::kLong) : one_hot(spec, at::argmax(flat, 1));
  };
  const at::Tensor a = hot(preds, p);
  const at::Tensor b = hot(target, t);
  return {(a * b).sum(2), a.sum(2), b.sum(2)};
}

MaskCounts mask_counts(const MaskSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  check_masks(spec, preds, target);
  const bool p = has_class_dimension(spec, preds, target);
  const bool t = has_class_dimension(spec, target, preds);
  MaskCounts counts;
  if (!preds.is_cpu()) {
    counts = count_on_device(spec, preds, target, p, t);
  } else {
    const MaskValues a = read_mask(spec, "preds", preds, p);
    const MaskValues b = read_mask(spec, "target", target, t);
    if (a.is_index && b.is_index) {
      counts = count_indices(spec, a.values, b.values);
    } else {
      counts = count_one_hot(a.is_index ? one_hot(spec, a.values) : a.values,
                             b.is_index ? one_hot(spec, b.values) : b.values);
    }
  }
  const int64_t left_out = spec.classes - spec.counted();
  if (left_out == 0) return counts;
  const auto foreground = [&](const at::Tensor& count) { return count.narrow(1, left_out, spec.counted()); };
  return {foreground(counts.both), foreground(counts.preds), foreground(counts.target)};
}

enum : size_t { dice_numerator, dice_denominator, dice_support };  // global
enum : size_t { dice_scores, dice_counted };                       // samplewise

// Reduces rows of classes to a score per row, or to the scores of all classes. nan where there is nothing to score.
at::Tensor dice_of(const at::Tensor& numerator, const at::Tensor& denominator, const at::Tensor& support,
                   Average average) {
  if (average == Average::micro) return numerator.sum(-1) / denominator.sum(-1);
  const at::Tensor dice = numerator / denominator;
  if (average == Average::none) return dice;
  if (average == Average::macro) return at::nanmean(dice, at::IntArrayRef{-1});
  const at::Tensor weights = support / support.sum(-1, /*keepdim=*/true);
  const at::Tensor nothing = at::isnan(dice).all(-1);
  const at::Tensor weighted = at::nansum(dice * weights, at::IntArrayRef{-1});
  return at::where(nothing, at::full_like(weighted, std::numeric_limits<double>::quiet_NaN()), weighted);
}

}  // namespace

DiceScore::DiceScore(DiceScoreOptions options) : options_(checked(options, "DiceScoreOptions")) {
  spec_ = {"DiceScore", options_.num_classes, options_.include_background, options_.input_format};
  if (options_.aggregation_level == AggregationLevel::global) {
    for (const char* name : {"numerator", "denominator", "support"}) {
      add_state(name, StateReduce::sum, at::zeros({spec_.counted()}, at::kLong));
    }
    return;
  }
  const int64_t values = options_.average == Average::none ? spec_.counted() : 1;
  add_state("scores", StateReduce::sum, at::zeros({values}, at::kDouble));
  add_state("counted", StateReduce::sum, at::zeros({values}, at::kLong));
}

void DiceScore::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const MaskCounts counts = mask_counts(spec_, preds, target);
  begin_update(preds.device());
  const at::Tensor numerator = counts.both * 2;
  const at::Tensor denominator = counts.preds + counts.target;
  if (options_.aggregation_level == AggregationLevel::global) {
    state(dice_numerator).add_(numerator.sum(0));
    state(dice_denominator).add_(denominator.sum(0));
    state(dice_support).add_(counts.target.sum(0));
    return;
  }
  const at::Tensor scores =
      dice_of(numerator.to(at::kDouble), denominator.to(at::kDouble), counts.target.to(at::kDouble), options_.average);
  const at::Tensor counted = at::isnan(scores).logical_not();
  state(dice_scores).add_(at::nansum(scores, at::IntArrayRef{0}));
  state(dice_counted).add_(counted.sum(0));
}

at::Tensor DiceScore::compute() const {
  if (options_.aggregation_level == AggregationLevel::global) {
    return dice_of(state(dice_numerator).to(at::kDouble), state(dice_denominator).to(at::kDouble),
                   state(dice_support).to(at::kDouble), options_.average);
  }
  const at::Tensor value = state(dice_scores) / state(dice_counted);
  return options_.average == Average::none ? value : value.squeeze(0);
}

MeanIoU::MeanIoU(MeanIoUOptions options) : options_(checked(options, "MeanIoUOptions")) {
  spec_ = {"MeanIoU", options_.num_classes, options_.include_background, options_.input_format};
  const int64_t values = options_.per_class ? spec_.counted() : 1;
  add_state("score", StateReduce::sum, at::zeros({values}, at::kDouble));
  add_state("num_batches", StateReduce::sum, at::zeros({values}, at::kLong));
}

void MeanIoU::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const MaskCounts counts = mask_counts(spec_, preds, target);
  begin_update(preds.device());
  const at::Tensor either = counts.preds + counts.target - counts.both;
  const at::Tensor scores = counts.both.to(at::kDouble) / either.clamp_min(1);  // 0 where there is nothing
  const at::Tensor valid = either > 0;
  state(0).add_(options_.per_class ? scores.sum(0) : scores.sum());
  state(1).add_(options_.per_class ? valid.sum(0) : valid.sum());
}

at::Tensor MeanIoU::compute() const {
  const at::Tensor value = state(0) / state(1);
  return options_.per_class ? at::nan_to_num(value, -1.0) : value.squeeze(0);
}

}  // namespace levin::metrics
