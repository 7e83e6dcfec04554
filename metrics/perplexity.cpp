#include "levin/metrics/perplexity.h"

#include <ATen/ops/div.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "levin/core/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/softmax_loops.h"

namespace levin::metrics {

namespace {

void check_shapes(const at::Tensor& preds, const at::Tensor& target) {
  const bool fits = preds.dim() == 3 && target.dim() == 2 && preds.sizes().slice(0, 2) == target.sizes();
  if (!fits) {
    throw Error("Perplexity: preds has the shape " + shape_of(preds) + " and target " + shape_of(target) +
                ". Give logits (N, T, V) and tokens (N, T).");
  }
  if (!preds.is_floating_point() || target.scalar_type() != at::kLong) {
    throw Error("Perplexity: preds has the type " + std::string(c10::toString(preds.scalar_type())) + " and target " +
                c10::toString(target.scalar_type()) + ". Give logits of a floating-point type and tokens of int64.");
  }
  if (preds.device() != target.device()) {
    throw Error("Perplexity: preds is on " + preds.device().str() + " and target on " + target.device().str() +
                ". Move both to one device.");
  }
}

// The sum of negative log-probabilities of the tokens at `rows`.
template <class T>
double negative_log_probability(const T* logits, const int64_t* tokens, const std::vector<int64_t>& rows, int64_t words,
                                int64_t all) {
  std::vector<double> log_sums(static_cast<size_t>(all));
  for (size_t begin = 0; begin < rows.size();) {  // runs of neighbours together
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    const int64_t first = rows[begin];
    row_log_sum_exp(logits + first * words, static_cast<int64_t>(end - begin), words, log_sums.data() + first);
    begin = end;
  }
  double sum = 0;
  for (const int64_t row : rows) {
    sum += log_sums[static_cast<size_t>(row)] - static_cast<double>(logits[row * words + tokens[row]]);
  }
  return sum;
}

}  // namespace

Perplexity::Perplexity(PerplexityOptions options) : options_(checked(options, "PerplexityOptions")) {
  add_state("total_log_probs", StateReduce::sum, at::zeros({}, at::kDouble));
  add_state("count", StateReduce::sum, at::zeros({}, at::kLong));
}

void Perplexity::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  check_shapes(preds, target);
  const bool is_half = preds.scalar_type() != at::kDouble && preds.scalar_type() != at::kFloat;
  const at::Tensor logits = is_half ? preds.to(at::kFloat) : preds;
  if (logits.is_cpu()) {
    const at::Tensor here = logits.contiguous();
    const at::Tensor tokens = target.contiguous();
    add_rows(here, tokens);
    return;
  }
  begin_update(logits.device());
  const at::Tensor log_probabilities = at::log_softmax(logits, -1);
  const at::Tensor counted =
      options_.ignore_index ? target.ne(*options_.ignore_index) : at::ones_like(target, at::kBool);
  const at::Tensor tokens = at::where(counted, target, 0).unsqueeze(-1);
  const at::Tensor chosen = at::gather(log_probabilities, -1, tokens).squeeze(-1);
  state(0).sub_(at::where(counted, chosen, 0).sum(at::kDouble));
  state(1).add_(counted.sum());
}

// On the CPU, all checked before anything is counted.
void Perplexity::add_rows(const at::Tensor& logits, const at::Tensor& target) {
  const int64_t words = logits.size(2);
  const int64_t* tokens = target.const_data_ptr<int64_t>();
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(target.numel()));
  for (int64_t i = 0; i < target.numel(); ++i) {
    if (options_.ignore_index && tokens[i] == *options_.ignore_index) continue;
    if (tokens[i] < 0 || tokens[i] >= words) {
      throw Error("Perplexity: target has the token " + std::to_string(tokens[i]) + " at index " + std::to_string(i) +
                  " (flattened), and preds have logits for 0 to " + std::to_string(words - 1) +
                  ". If it marks what to leave out, set .ignore_index to it.");
    }
    rows.push_back(i);
  }
  begin_update(logits.device());
  double& sum = *state(0).mutable_data_ptr<double>();
  sum += logits.scalar_type() == at::kFloat
             ? negative_log_probability(logits.const_data_ptr<float>(), tokens, rows, words, target.numel())
             : negative_log_probability(logits.const_data_ptr<double>(), tokens, rows, words, target.numel());
  *state(1).mutable_data_ptr<int64_t>() += static_cast<int64_t>(rows.size());
}

at::Tensor Perplexity::compute() const {
  return at::exp(at::div(state(0), state(1)));
}

}  // namespace levin::metrics
