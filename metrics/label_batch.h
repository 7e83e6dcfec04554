// The predictions and targets of a batch for a classification metric: checked, and in a few shapes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "levin/metrics/classification_options.h"

namespace levin::metrics {

/// What labels are, for the checks and counts that classification metrics share.
struct LabelSpec {
  std::string metric = "";  // its name, for messages
  Task task = Task::multiclass;
  int64_t classes = 1;  // multiclass: num_classes; multilabel: num_labels; binary: 1
  std::optional<int64_t> ignore_index = std::nullopt;
  double threshold = 0.5;
  int64_t top_k = 1;
  bool needs_scores = false;  // predictions that are labels are an error
  Scores scores = Scores::automatic;

  /// The values that a label may have are 0 to values() - 1.
  [[nodiscard]] int64_t values() const { return task == Task::multiclass ? classes : 2; }
  /// ignore_index of multiclass where it is a class.
  [[nodiscard]] std::optional<int64_t> ignored_class() const {
    const bool is_class = task == Task::multiclass && ignore_index && *ignore_index >= 0 && *ignore_index < classes;
    return is_class ? ignore_index : std::nullopt;
  }
  /// ignore_index, or a number that is no label.
  [[nodiscard]] int64_t ignored() const { return ignore_index.value_or(std::numeric_limits<int64_t>::min()); }
};

/// Throws ConfigError if the number that the task requires is missing.
[[nodiscard]] LabelSpec label_spec(const std::string& metric, Task task, int64_t num_classes, int64_t num_labels,
                                   std::optional<int64_t> ignore_index);

/// Scores are (N, C, S): S is the product of the dimensions after the second; binary (N, 1, 1). `target`, and `preds`
/// that are labels, are int64 and contiguous: (N, S) of multiclass, else as scores.
struct LabelBatch {
  at::Tensor preds;
  at::Tensor target;
  bool has_scores = true;
  bool direct = false;  // on the CPU, int64 or float, contiguous: a loop may read the memory
  [[nodiscard]] bool on_cpu() const { return target.is_cpu(); }
};

/// Throws Error naming the metric, what was given and what it takes if shapes, types or devices do not fit. On the CPU
/// labels out of range are an error too; on another device no number is read.
[[nodiscard]] LabelBatch label_batch(const LabelSpec& spec, const at::Tensor& preds, const at::Tensor& target);

/// Whether a score whose label is not ignored is outside [0, 1] by more than kScoreTolerance, so that all scores are
/// logits: a bool scalar on their device. NaN decides nothing.
[[nodiscard]] at::Tensor has_logits(const LabelSpec& spec, const LabelBatch& batch);

/// Which scores belong to ignored labels: a mask that broadcasts to `preds`. There must be an ignore_index.
[[nodiscard]] at::Tensor ignored_scores(const LabelSpec& spec, const LabelBatch& batch);

/// Scores as rows: (N * S, C), in the order of the flattened target.
[[nodiscard]] at::Tensor score_rows(const at::Tensor& scores);

}  // namespace levin::metrics
