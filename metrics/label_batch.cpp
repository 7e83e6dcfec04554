#include "levin/metrics/label_batch.h"

#include <ATen/ops/full.h>

#include "levin/core/options/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/score_loops.h"

namespace levin::metrics {

namespace {

std::string what_fits(const LabelSpec& spec) {
  if (spec.task == Task::binary) return "For the task binary both have the same shape, (N, ...).";
  const std::string count = std::to_string(spec.classes);
  if (spec.task == Task::multilabel) {
    return "For the task multilabel both are (N, L, ...) with L = num_labels = " + count + ".";
  }
  return "For the task multiclass preds are scores (N, C, ...) with C = num_classes = " + count +
         (spec.needs_scores ? "" : ", or labels (N, ...)") + ", and target is (N, ...).";
}

[[noreturn]] void refuse_shapes(const LabelSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  throw Error(spec.metric + ": preds has the shape " + shape_of(preds) + " and target " + shape_of(target) + ". " +
              what_fits(spec));
}

std::string type_text(const at::Tensor& tensor) {
  return c10::toString(tensor.scalar_type());
}

bool holds_labels(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

void check_types(const LabelSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  check_same_device(spec.metric, preds, target);
  if (!holds_labels(target)) {
    throw Error(spec.metric + ": target has the type " + type_text(target) +
                ". Labels are integers: pass target.to(at::kLong).");
  }
  if (!preds.is_floating_point() && !holds_labels(preds)) {
    throw Error(spec.metric + ": preds has the type " + type_text(preds) +
                ". Pass scores (floating point) or labels (integers).");
  }
  if (spec.needs_scores && !preds.is_floating_point()) {
    throw Error(spec.metric + ": preds has the type " + type_text(preds) +
                ". It needs scores, probabilities or logits, not labels.");
  }
}

// True if `preds` are scores with a dimension more than `target`, or one for each label.
bool check_shapes(const LabelSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  const auto p = preds.sizes();
  const auto t = target.sizes();
  if (t.empty()) refuse_shapes(spec, preds, target);
  if (spec.task != Task::multiclass) {
    if (p != t || (spec.task == Task::multilabel && (p.size() < 2 || p[1] != spec.classes))) {
      refuse_shapes(spec, preds, target);
    }
    return preds.is_floating_point();
  }
  if (p.size() == t.size() + 1) {
    const bool fits = preds.is_floating_point() && p[0] == t[0] && p[1] == spec.classes && p.slice(2) == t.slice(1);
    if (!fits) refuse_shapes(spec, preds, target);
    return true;
  }
  if (p != t || spec.needs_scores || preds.is_floating_point()) refuse_shapes(spec, preds, target);
  if (spec.top_k > 1) {
    throw Error(spec.metric + ": preds are labels, and top_k is " + std::to_string(spec.top_k) +
                ". Pass scores (N, C, ...), or set .top_k to 1.");
  }
  return false;
}

[[noreturn]] void refuse_label(const LabelSpec& spec, const char* where, int64_t label, int64_t index) {
  throw Error(spec.metric + ": " + where + " has the label " + std::to_string(label) + " at index " +
              std::to_string(index) + " (flattened). Labels are 0 to " + std::to_string(spec.values() - 1) +
              (spec.task == Task::multiclass ? ", as num_classes is " + std::to_string(spec.classes) : "") +
              ". If it marks what to leave out, set .ignore_index to it.");
}

void check_labels(const LabelSpec& spec, const LabelBatch& batch) {
  const auto most = static_cast<uint64_t>(spec.values());
  const int64_t ignored = spec.ignored();
  const int64_t count = batch.target.numel();
  const int64_t* target = batch.target.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    if (static_cast<uint64_t>(target[i]) >= most && target[i] != ignored) refuse_label(spec, "target", target[i], i);
  }
  if (batch.has_scores) return;
  const int64_t* preds = batch.preds.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    if (static_cast<uint64_t>(preds[i]) >= most && target[i] != ignored) refuse_label(spec, "preds", preds[i], i);
  }
}

// In the CPU's memory: stops near the first one.
bool finds_logits(const LabelSpec& spec, const LabelBatch& batch) {
  const float* scores = batch.preds.const_data_ptr<float>();
  const int64_t count = batch.preds.numel();
  if (!any_outside_unit(scores, count)) return false;  // which NaN is, too
  const bool is_multiclass = spec.task == Task::multiclass;
  const int64_t positions = batch.preds.size(2), classes = batch.preds.size(1);
  const int64_t* target = spec.ignore_index ? batch.target.const_data_ptr<int64_t>() : nullptr;
  for (int64_t i = 0; i < count; ++i) {
    if (!(scores[i] < kLowestProbability || scores[i] > kHighestProbability)) continue;
    const int64_t label = is_multiclass ? i / (classes * positions) * positions + i % positions : i;
    if (target == nullptr || target[label] != *spec.ignore_index) return true;
  }
  return false;
}

}  // namespace

LabelSpec label_spec(const std::string& metric, Task task, int64_t num_classes, int64_t num_labels,
                     std::optional<int64_t> ignore_index) {
  LabelSpec spec{.metric = metric, .task = task, .ignore_index = ignore_index};
  if (task == Task::multiclass) {
    if (num_classes < 2) {
      throw ConfigError(metric + ".num_classes: must be >= 2 for the task multiclass, got " +
                        std::to_string(num_classes) +
                        (num_labels > 0 ? ". For several labels per sample set .task to multilabel."
                                        : ". For one label that is 0 or 1 set .task to binary."));
    }
    spec.classes = num_classes;
  } else if (task == Task::multilabel) {
    if (num_labels < 2) {
      throw ConfigError(metric + ".num_labels: must be >= 2 for the task multilabel, got " +
                        std::to_string(num_labels) + ".");
    }
    spec.classes = num_labels;
  }
  return spec;
}

LabelBatch label_batch(const LabelSpec& spec, const at::Tensor& preds, const at::Tensor& target) {
  check_types(spec, preds, target);
  LabelBatch batch;
  batch.has_scores = check_shapes(spec, preds, target);
  const int64_t samples = spec.task == Task::binary ? target.numel() : target.size(0);
  const int64_t labels = spec.task == Task::multilabel ? spec.classes : 1;
  const int64_t positions = samples == 0 ? 0 : target.numel() / (samples * labels);
  const std::vector<int64_t> shape = spec.task == Task::multiclass ? std::vector<int64_t>{samples, positions}
                                                                   : std::vector<int64_t>{samples, labels, positions};
  batch.target = target.to(at::kLong).reshape(shape).contiguous();
  if (!batch.has_scores) {
    batch.preds = preds.to(at::kLong).reshape(shape).contiguous();
  } else if (spec.task == Task::multiclass) {
    batch.preds = preds.detach().reshape({samples, spec.classes, positions});
  } else {
    batch.preds = preds.detach().reshape(shape);
  }
  batch.direct =
      batch.on_cpu() && batch.preds.is_contiguous() && (!batch.has_scores || batch.preds.scalar_type() == at::kFloat);
  if (batch.on_cpu()) check_labels(spec, batch);
  return batch;
}

at::Tensor ignored_scores(const LabelSpec& spec, const LabelBatch& batch) {
  const at::Tensor ignored = batch.target.eq(*spec.ignore_index);
  return spec.task == Task::multiclass ? ignored.unsqueeze(1) : ignored;
}

at::Tensor has_logits(const LabelSpec& spec, const LabelBatch& batch) {
  if (batch.direct) return at::full({}, finds_logits(spec, batch), at::kBool);
  const at::Tensor outside = batch.preds.lt(-kScoreTolerance).bitwise_or(batch.preds.gt(1 + kScoreTolerance));
  return (spec.ignore_index ? outside.bitwise_and(ignored_scores(spec, batch).bitwise_not()) : outside).any();
}

at::Tensor score_rows(const at::Tensor& scores) {
  return scores.size(2) == 1 ? scores.squeeze(2) : scores.transpose(1, 2).reshape({-1, scores.size(1)});
}

}  // namespace levin::metrics
