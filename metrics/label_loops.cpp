#include "levin/metrics/label_loops.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace levin::metrics {

namespace {

// Four floats, and what comparing them gives, in one register of any x86-64 or ARMv8.
using Four [[gnu::vector_size(16)]] = float;
using Mask [[gnu::vector_size(16)]] = int32_t;
using Bits [[gnu::vector_size(16)]] = uint32_t;

Four four_at(const float* scores) {
  Four four;
  std::memcpy(&four, scores, sizeof four);
  return four;
}

bool any(Mask mask) {
  return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}

float highest_of(Four a) {
  return std::max(std::max(a[0], a[1]), std::max(a[2], a[3]));
}

int64_t first_nan(const float* scores, int64_t count) {
  return std::find_if(scores, scores + count, [](float score) { return std::isnan(score); }) - scores;
}

// By conditional moves: which score is the highest cannot be predicted.
int64_t first_that_is_highest(const float* scores, int64_t count) {
  int64_t found = 0;
  float top = scores[0];
  bool odd = std::isnan(top);
  for (int64_t i = 1; i < count; ++i) {
    const float score = scores[i];
    const bool is_higher = score > top;
    odd |= score != score;
    found = is_higher ? i : found;
    top = is_higher ? score : top;
  }
  return odd ? first_nan(scores, count) : found;
}

constexpr int64_t block_size = 64;

// The highest of block_size scores; marks in `odd` if one is NaN.
float highest_of_block(const float* scores, Mask& odd) {
  Four best[4] = {four_at(scores), four_at(scores + 4), four_at(scores + 8), four_at(scores + 12)};
  for (const Four& four : best) odd |= four != four;
  for (int64_t i = 16; i < block_size; i += 16) {
    for (int64_t k = 0; k < 4; ++k) {
      const Four four = four_at(scores + i + 4 * k);
      odd |= four != four;
      best[k] = four > best[k] ? four : best[k];
    }
  }
  for (int64_t k = 1; k < 4; ++k) best[0] = best[k] > best[0] ? best[k] : best[0];
  return highest_of(best[0]);
}

// The class that is predicted for each position, (N, S): the target's if it is among the k highest scores.
at::Tensor predicted_classes(const LabelSpec& spec, const at::Tensor& scores, const at::Tensor& truth) {
  const at::Tensor highest = at::argmax(scores, 1);
  if (spec.top_k == 1) return highest;
  const at::Tensor score = scores.gather(1, truth.unsqueeze(1));
  const at::Tensor is_nan = scores.ne(scores);
  const at::Tensor score_is_nan = score.ne(score);
  const at::Tensor index = at::arange(spec.classes, truth.options()).view({1, spec.classes, 1});
  const at::Tensor higher = scores.gt(score).bitwise_or(is_nan.bitwise_and(score_is_nan.bitwise_not()));
  const at::Tensor as_high = scores.eq(score).bitwise_or(is_nan.bitwise_and(score_is_nan));
  const at::Tensor ahead = higher.bitwise_or(as_high.bitwise_and(index.lt(truth.unsqueeze(1)))).sum(1);
  return at::where(ahead.lt(spec.top_k), truth, highest);
}

// 2^x of numbers that are at most 0, to 2e-7: 2^n 2^f, where |f| <= 0.5 and 2^f is its Taylor polynomial. Below 2^-120,
// which is negligible next to the 1 of the highest, it stays there.
Four power_of_2(Four x) {
  const Four low = Four{} - 120.0F;
  const Four round = Four{} + 12582912.0F;  // 1.5 * 2^23: its last bit is 1, and adding it rounds
  x = low > x ? low : x;                    // NaN stays
  const Four shifted = x + round;
  const Four f = x - (shifted - round);
  Four sum = f * 1.5403530e-4F + 1.3333558e-3F;
  for (const float term : {9.6181291e-3F, 5.5504109e-2F, 0.24022651F, 0.69314718F, 1.0F}) sum = sum * f + term;
  Bits exponent;  // n is in the last bits of what was shifted
  std::memcpy(&exponent, &shifted, sizeof exponent);
  exponent = (exponent << 23) + (127U << 23);
  Four power;
  std::memcpy(&power, &exponent, sizeof power);
  return sum * power;
}

}  // namespace

int64_t highest(const float* scores, int64_t count) {
  if (count < block_size) return first_that_is_highest(scores, count);
  float best = -std::numeric_limits<float>::infinity();
  int64_t start = 0;  // of the block that holds it
  Mask odd{};
  int64_t i = 0;
  for (; i + block_size <= count; i += block_size) {
    const float here = highest_of_block(scores + i, odd);
    if (here > best) {
      best = here;
      start = i;
    }
  }
  if (any(odd)) return first_nan(scores, count);
  if (i < count) {
    const int64_t rest = i + first_that_is_highest(scores + i, count - i);
    if (!(scores[rest] <= best)) return rest;
  }
  for (i = start; scores[i] != best; ++i) {
  }
  return i;
}

float highest_probability(const float* logits, int64_t count, int64_t highest) {
  const float top = logits[highest];
  Four sums{};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) sums += power_of_2((four_at(logits + i) - top) * 1.44269504F);
  float sum = sums[0] + sums[1] + sums[2] + sums[3];
  for (; i < count; ++i) sum += std::exp(logits[i] - top);
  return 1.0F / sum;
}

void highest_of_columns(const float* scores, int64_t rows, int64_t stride, int64_t columns, int64_t* found) {
  std::fill_n(found, columns, 0);
  std::array<float, 256> best{};
  std::copy_n(scores, columns, best.begin());
  for (int64_t row = 1; row < rows; ++row) {
    const float* here = scores + row * stride;
    for (int64_t s = 0; s < columns; ++s) {
      const float top = best[static_cast<size_t>(s)];
      // A comparison with NaN is false: a NaN here is not <= top, and a NaN in `top` stays.
      const bool is_higher = !(here[s] <= top) && top == top;
      best[static_cast<size_t>(s)] = is_higher ? here[s] : top;
      found[s] = is_higher ? row : found[s];
    }
  }
}

bool is_among_top(const float* scores, int64_t count, int64_t stride, int64_t index, int64_t k) {
  const float score = scores[index * stride];
  int64_t ahead = 0;
  if (std::isnan(score)) {
    for (int64_t c = 0; c < index; ++c) ahead += std::isnan(scores[c * stride]) ? 1 : 0;
    return ahead < k;
  }
  // A comparison with NaN is false, so that NaN is ahead.
  for (int64_t c = 0; c < index; ++c) ahead += scores[c * stride] < score ? 0 : 1;
  for (int64_t c = index + 1; c < count; ++c) ahead += scores[c * stride] <= score ? 0 : 1;
  return ahead < k;
}

double score_limit(double threshold, bool logits) {
  if (logits) return std::log(threshold) - std::log1p(-threshold);
  return threshold < 1 ? threshold : std::numeric_limits<double>::infinity();
}

float float_score_limit(double threshold, bool logits) {
  const double exact = score_limit(threshold, logits);
  const auto nearest = static_cast<float>(exact);
  const bool must_be_lower = logits ? nearest > exact : nearest == 1.0F;
  return must_be_lower ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest;
}

Counted counted_labels(const LabelSpec& spec, const at::Tensor& target) {
  const at::Tensor in_range = target.ge(0).bitwise_and(target.lt(spec.values()));
  if (!spec.ignore_index) return {in_range, in_range.bitwise_not().sum()};
  const at::Tensor kept = target.ne(*spec.ignore_index);
  return {in_range.bitwise_and(kept), in_range.bitwise_not().bitwise_and(kept).sum()};
}

at::Tensor normalized(const LabelSpec& spec, const at::Tensor& logits) {
  return spec.task == Task::multiclass ? at::softmax(logits, 1) : at::sigmoid(logits);
}

// Of multiclass x - log(sum of exp of the others): the highest is left out of the sum for the highest, since a
// difference would lose the small ones.
at::Tensor log_odds(const LabelSpec& spec, const at::Tensor& logits) {
  if (spec.task != Task::multiclass) return logits;
  const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor x = logits.to(logits.is_cpu() ? at::kDouble : type);
  const auto [top, index] = x.max(1, /*keepdim=*/true);
  const at::Tensor powers = x.sub(top).exp();
  const at::Tensor others = powers.sum(1, /*keepdim=*/true).sub(powers).log().add(top);
  const at::Tensor rest = x.scatter(1, index, -std::numeric_limits<double>::infinity());
  const at::Tensor second = rest.amax(1, /*keepdim=*/true).clamp_min(std::numeric_limits<float>::lowest());
  const at::Tensor of_top = rest.sub(second).exp().sum(1, /*keepdim=*/true).log().add(second);
  return x.sub(others.scatter(1, index, of_top)).to(type);
}

FlatLabels flat_labels(const LabelSpec& spec, const LabelBatch& batch, Scores reading) {
  FlatLabels flat;
  Counted counted = counted_labels(spec, batch.target);
  if (!batch.has_scores) {
    const at::Tensor in_range = batch.preds.ge(0).bitwise_and(batch.preds.lt(spec.values()));
    counted.out_of_range = counted.out_of_range.add(counted.mask.bitwise_and(in_range.bitwise_not()).sum());
    counted.mask = counted.mask.bitwise_and(in_range);
  }
  const at::Tensor truth = batch.target.masked_fill(counted.mask.bitwise_not(), 0);
  at::Tensor predicted;
  if (!batch.has_scores) {
    predicted = batch.preds.masked_fill(counted.mask.bitwise_not(), 0);
  } else if (spec.task == Task::multiclass) {
    predicted = predicted_classes(spec, batch.preds, truth);
  } else {
    const bool logits = reading == Scores::logits;
    const bool is_double = batch.preds.scalar_type() == at::kDouble;
    const at::Tensor scores = is_double ? batch.preds : batch.preds.to(at::kFloat);  // a half float's limit may be 1
    const double limit = is_double ? score_limit(spec.threshold, logits) : float_score_limit(spec.threshold, logits);
    predicted = scores.gt(limit).to(at::kLong);
  }
  if (spec.task == Task::multilabel) {
    const at::Tensor label = at::arange(spec.classes, truth.options()).view({1, spec.classes, 1});
    flat.label = label.expand(truth.sizes()).reshape(-1);
  }
  flat.truth = truth.reshape(-1);
  flat.predicted = predicted.reshape(-1);
  flat.weight = counted.mask.to(at::kLong).reshape(-1);
  flat.out_of_range = counted.out_of_range;
  return flat;
}

at::Tensor added_at(const at::Tensor& index, const at::Tensor& weight, int64_t size) {
  return at::zeros({size}, weight.options()).scatter_add(0, index, weight);
}

}  // namespace levin::metrics
