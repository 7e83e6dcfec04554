// The predictions and targets of a batch for a classification metric: checked, and in a few shapes. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "levin/core/options/fields.h"

namespace levin::metrics {

/// binary: one label per sample, 0 or 1. multiclass: one of num_classes. multilabel: num_labels labels, each 0 or 1.
enum class Task { binary, multiclass, multilabel };

/// What scores are. automatic: logits if any score since the last reset(), in any batch on any rank, is outside [0, 1]
/// by more than 1e-4, otherwise probabilities.
enum class Scores { automatic, probabilities, logits };

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

  /// Returns the number of values that a label may have: 0 to values() - 1.
  [[nodiscard]] int64_t values() const { return task == Task::multiclass ? classes : 2; }
  /// ignore_index if the task is multiclass and it is one of the classes.
  [[nodiscard]] std::optional<int64_t> ignored_class() const {
    const bool is_class = task == Task::multiclass && ignore_index && *ignore_index >= 0 && *ignore_index < classes;
    return is_class ? ignore_index : std::nullopt;
  }
  /// ignore_index, or a number that no label has.
  [[nodiscard]] int64_t ignored() const { return ignore_index.value_or(std::numeric_limits<int64_t>::min()); }
};

/// Throws ConfigError if the task needs a number of classes or labels that is missing.
[[nodiscard]] LabelSpec label_spec(const std::string& metric, Task task, int64_t num_classes, int64_t num_labels,
                                   std::optional<int64_t> ignore_index);

/// Checks the options of a classification metric and takes from them what labels are. Throws ConfigError.
template <class Options>
[[nodiscard]] LabelSpec label_spec(const std::string& metric, const Options& given) {
  const Options options = checked(given, metric);
  int64_t num_labels = 0;
  if constexpr (requires { options.num_labels; }) num_labels = options.num_labels;
  LabelSpec spec = label_spec(metric, options.task, options.num_classes, num_labels, options.ignore_index);
  spec.scores = options.scores;
  if constexpr (requires { options.threshold; }) spec.threshold = options.threshold;
  if constexpr (requires { options.top_k; }) spec.top_k = options.top_k;
  return spec;
}

/// A batch in uniform shapes. Scores are (N, C, S), where S is the product of the dimensions after the second; binary
/// scores are (N, 1, 1). `target`, and `preds` if they are labels, are contiguous int64: (N, S) for multiclass,
/// otherwise the shape of scores.
struct LabelBatch {
  at::Tensor preds;
  at::Tensor target;
  bool has_scores = true;
  bool direct = false;  // on the CPU, int64 or float, contiguous: a loop may read the memory
  [[nodiscard]] bool on_cpu() const { return target.is_cpu(); }
};

/// Throws Error naming the metric, what it was given and what it takes if shapes, types or devices do not fit. On the
/// CPU, labels out of range are an error too; on another device no number is read.
[[nodiscard]] LabelBatch label_batch(const LabelSpec& spec, const at::Tensor& preds, const at::Tensor& target);

/// Returns whether a score whose label is not ignored is outside [0, 1] by more than 1e-4, so that all scores are
/// logits: a bool scalar on their device. NaN decides nothing.
[[nodiscard]] at::Tensor has_logits(const LabelSpec& spec, const LabelBatch& batch);

/// Which scores belong to ignored labels: a mask that broadcasts to `preds`. Requires an ignore_index.
[[nodiscard]] at::Tensor ignored_scores(const LabelSpec& spec, const LabelBatch& batch);

/// Scores as rows: (N * S, C), in the order of the flattened target.
[[nodiscard]] at::Tensor score_rows(const at::Tensor& scores);

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::Task> {
  static constexpr EnumName<metrics::Task> names[] = {{"binary", metrics::Task::binary},
                                                      {"multiclass", metrics::Task::multiclass},
                                                      {"multilabel", metrics::Task::multilabel}};
};

template <>
struct EnumNames<metrics::Scores> {
  static constexpr EnumName<metrics::Scores> names[] = {{"auto", metrics::Scores::automatic},
                                                        {"probabilities", metrics::Scores::probabilities},
                                                        {"logits", metrics::Scores::logits}};
};

}  // namespace levin
