// Counts the labels of a batch: by one loop over the CPU's memory, in which the highest score is found and counted in
// one pass, or by LibTorch's operators on any device, without reading a number from it. Internal.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "levin/metrics/label_batch.h"

namespace levin::metrics {

/// The index of the highest of `count` scores; the first of several. NaN is higher than all numbers, as in at::argmax.
[[nodiscard]] int64_t highest(const float* scores, int64_t count);
/// Returns the softmax of a row at its highest logit, whose index is `highest`.
[[nodiscard]] float highest_probability(const float* logits, int64_t count, int64_t highest);

/// For each of `columns` adjacent columns of a matrix with `stride` columns: the row of its highest score.
void highest_of_columns(const float* scores, int64_t rows, int64_t stride, int64_t columns, int64_t* found);

/// Whether fewer than `k` of `count` scores, `stride` apart, are ahead of the one at `index`: higher, or as high with a
/// lower index.
[[nodiscard]] bool is_among_top(const float* scores, int64_t count, int64_t stride, int64_t index, int64_t k);

/// The limit that a score must exceed so that its probability exceeds the threshold: of logits the threshold's
/// log-odds, as a float32 sigmoid is 1 from 17 on. No probability exceeds 1, even if rounding puts it just above.
[[nodiscard]] double score_limit(double threshold, bool logits);
/// The same for float scores. A threshold of probabilities is rounded to float, as in torchmetrics, so that a score of
/// 0.1F is not above 0.1.
[[nodiscard]] float float_score_limit(double threshold, bool logits);

/// How many of `count` rising thresholds, evenly spaced from 0 to 1, a score reaches. NaN reaches none.
class ThresholdsReached {
 public:
  ThresholdsReached(const float* thresholds, int64_t count) : thresholds_(thresholds), count_(count) {}
  int64_t operator()(float score) const {
    if (std::isnan(score)) return 0;
    score = std::clamp(score, 0.0F, 1.0F);  // a probability that rounding puts outside reaches the last one
    int64_t k = static_cast<int64_t>(score * static_cast<float>(count_ - 1));
    while (k < count_ && thresholds_[k] <= score) ++k;
    while (k > 0 && thresholds_[k - 1] > score) --k;
    return k;
  }

 private:
  const float* thresholds_;
  int64_t count_;
};

namespace detail {

template <class Count>
void count_rows(const LabelSpec& spec, const LabelBatch& batch, Count& count) {
  const float* row = batch.preds.const_data_ptr<float>();
  const int64_t* target = batch.target.const_data_ptr<int64_t>();
  for (int64_t n = 0; n < batch.target.numel(); ++n, row += spec.classes) {
    if (target[n] == spec.ignored()) continue;
    const bool is_top = spec.top_k > 1 && is_among_top(row, spec.classes, 1, target[n], spec.top_k);
    count(0, target[n], is_top ? target[n] : highest(row, spec.classes));
  }
}

template <class Count>
void count_columns(const LabelSpec& spec, const LabelBatch& batch, Count& count) {
  constexpr int64_t most = 256;  // columns whose highest scores are searched for together
  std::array<int64_t, most> found{};
  const int64_t positions = batch.target.size(1);
  const float* scores = batch.preds.const_data_ptr<float>();
  const int64_t* target = batch.target.const_data_ptr<int64_t>();
  for (int64_t n = 0; n < batch.target.size(0); ++n) {
    for (int64_t first = 0; first < positions; first += most) {
      const int64_t columns = std::min(most, positions - first);
      const float* block = scores + n * spec.classes * positions + first;
      highest_of_columns(block, spec.classes, positions, columns, found.data());
      for (int64_t s = 0; s < columns; ++s) {
        const int64_t truth = target[n * positions + first + s];
        if (truth == spec.ignored()) continue;
        const bool is_top = spec.top_k > 1 && is_among_top(block + s, spec.classes, positions, truth, spec.top_k);
        count(0, truth, is_top ? truth : found[static_cast<size_t>(s)]);
      }
    }
  }
}

// `predicted(i)` is the label that is predicted for the i-th element.
template <class Predicted, class Count>
void count_elements(const LabelSpec& spec, const LabelBatch& batch, Predicted predicted, Count& count) {
  const bool has_labels = spec.task == Task::multilabel;
  const int64_t labels = has_labels ? spec.classes : 1;
  const int64_t positions = has_labels ? batch.target.size(2) : 1;
  const int64_t samples = batch.target.numel() / std::max<int64_t>(1, labels * positions);
  const int64_t* target = batch.target.const_data_ptr<int64_t>();
  int64_t i = 0;
  for (int64_t n = 0; n < samples; ++n) {
    for (int64_t label = 0; label < labels; ++label) {
      for (int64_t s = 0; s < positions; ++s, ++i) {
        if (target[i] != spec.ignored()) count(label, target[i], predicted(i));
      }
    }
  }
}

}  // namespace detail

/// Calls count(label, truth, predicted) for each label that is not ignored; `label` is 0 but for multilabel. The batch
/// must be direct. `reading`: how scores are compared with the threshold, for binary and multilabel.
template <class Count>
void for_each_label(const LabelSpec& spec, const LabelBatch& batch, Scores reading, Count count) {
  if (batch.target.numel() == 0) return;
  if (!batch.has_scores) {
    const int64_t* preds = batch.preds.const_data_ptr<int64_t>();
    detail::count_elements(
        spec, batch, [preds](int64_t i) { return preds[i]; }, count);
  } else if (spec.task != Task::multiclass) {
    const float* scores = batch.preds.const_data_ptr<float>();
    const float limit = float_score_limit(spec.threshold, reading == Scores::logits);
    detail::count_elements(
        spec, batch, [scores, limit](int64_t i) { return int64_t{scores[i] > limit}; }, count);
  } else if (batch.target.size(1) == 1) {
    detail::count_rows(spec, batch, count);
  } else {
    detail::count_columns(spec, batch, count);
  }
}

// ---- by operators ---------------------------------------------------------------------------------------------------

/// Which labels in `target` count: a mask of its shape; and how many labels are out of range, a scalar.
struct Counted {
  at::Tensor mask;
  at::Tensor out_of_range;
};
[[nodiscard]] Counted counted_labels(const LabelSpec& spec, const at::Tensor& target);

/// One int64 element for each label of a batch. Labels that do not count (ignored, or out of range on a device) have
/// weight 0, and the value 0 if they are out of range.
struct FlatLabels {
  at::Tensor label;  // multilabel: the index of the label; undefined otherwise
  at::Tensor truth;
  at::Tensor predicted;
  at::Tensor weight;
  at::Tensor out_of_range;  // the number of labels out of range, a scalar
};

/// `reading`: how scores are compared with the threshold, for binary and multilabel.
[[nodiscard]] FlatLabels flat_labels(const LabelSpec& spec, const LabelBatch& batch, Scores reading);

/// The sigmoid of logits, or for multiclass their softmax over dimension 1.
[[nodiscard]] at::Tensor normalized(const LabelSpec& spec, const at::Tensor& logits);

/// log(p / (1 - p)) of the probabilities p of logits (M, C), in their type (float for half precision). They have the
/// order of p, and still differ where p rounds to 1 or 0.
[[nodiscard]] at::Tensor log_odds(const LabelSpec& spec, const at::Tensor& logits);

/// zeros(size) with `weight` added at `index`.
[[nodiscard]] at::Tensor added_at(const at::Tensor& index, const at::Tensor& weight, int64_t size);

}  // namespace levin::metrics
