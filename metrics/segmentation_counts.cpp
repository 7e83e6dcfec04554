#include "levin/metrics/segmentation_counts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "levin/core/error.h"
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
  if (preds.device() != target.device()) {
    throw Error(spec.metric + ": preds is on " + preds.device().str() + " and target on " + target.device().str() +
                ". Move both to one device.");
  }
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

}  // namespace

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

}  // namespace levin::metrics
