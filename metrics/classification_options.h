// What classification metrics are told about the task, in torchmetrics' words.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "levin/core/fields.h"

namespace levin::metrics {

/// binary: one label per sample, 0 or 1. multiclass: one of num_classes. multilabel: num_labels labels, each 0 or 1.
enum class Task { binary, multiclass, multilabel };

/// How the values of classes, or labels, become one. micro: from the counts of all; macro: their mean; weighted: their
/// mean by the number of samples; none: a value for each.
enum class Average { micro, macro, weighted, none };

/// What scores are. automatic: logits if any score since the last reset(), of any batch and any rank, is outside [0, 1]
/// by more than kScoreTolerance, else probabilities.
enum class Scores { automatic, probabilities, logits };

/// Probabilities that were computed with rounding, such as sums of float32 products, may be this far outside [0, 1].
inline constexpr double kScoreTolerance = 1e-4;

}  // namespace levin::metrics

namespace levin {

template <>
struct EnumNames<metrics::Task> {
  static constexpr std::array names{std::pair{"binary", metrics::Task::binary},
                                    std::pair{"multiclass", metrics::Task::multiclass},
                                    std::pair{"multilabel", metrics::Task::multilabel}};
};

template <>
struct EnumNames<metrics::Average> {
  static constexpr std::array names{
      std::pair{"micro", metrics::Average::micro}, std::pair{"macro", metrics::Average::macro},
      std::pair{"weighted", metrics::Average::weighted}, std::pair{"none", metrics::Average::none}};
};

template <>
struct EnumNames<metrics::Scores> {
  static constexpr std::array names{std::pair{"auto", metrics::Scores::automatic},
                                    std::pair{"probabilities", metrics::Scores::probabilities},
                                    std::pair{"logits", metrics::Scores::logits}};
};

}  // namespace levin

namespace levin::metrics {

inline constexpr const char* kScoresHelp =
    "probabilities or logits; auto: logits if any score of the epoch is outside [0, 1] by more than 1e-4";

/// Of Accuracy, Precision, Recall, Specificity, F1Score and FBetaScore.
struct ClassificationOptions {
  Task task = Task::multiclass;  // torchmetrics: without a default; here: the task whose num_classes cannot be left out
  int64_t num_classes = 0;       // required for multiclass
  int64_t num_labels = 0;        // required for multilabel
  double threshold = 0.5;        // binary and multilabel: a score above it is 1
  Average average = Average::micro;
  int64_t top_k = 1;                                   // multiclass: right if the class is among the k highest scores
  std::optional<int64_t> ignore_index = std::nullopt;  // samples with this label are left out
  double beta = 1.0;                                   // FBetaScore only: recall counts beta times as much as precision
  Scores scores = Scores::automatic;                   // binary and multilabel: what is compared with the threshold

  template <class = void>
  static auto fields() {
    using O = ClassificationOptions;
    return levin::fields(
        field("task", &O::task, "what a sample's labels are"),
        field("num_classes", &O::num_classes, "classes of the task multiclass").min(0),
        field("num_labels", &O::num_labels, "labels of the task multilabel").min(0),
        field("threshold", &O::threshold, "a score above it is 1, of the tasks binary and multilabel")
            .min(0.0)
            .max(1.0),
        field("average", &O::average, "how the values of classes or labels become one"),
        field("top_k", &O::top_k, "right if the class is among the k highest scores, of the task multiclass").min(1),
        field("ignore_index", &O::ignore_index, "samples with this label are left out"),
        field("beta", &O::beta, "recall counts beta times as much as precision, of FBetaScore").above(0.0),
        field("scores", &O::scores, kScoresHelp));
  }
};

}  // namespace levin::metrics
