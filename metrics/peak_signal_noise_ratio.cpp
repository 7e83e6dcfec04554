#include "levin/metrics/peak_signal_noise_ratio.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "levin/core/error.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

// Elements along the dimensions that one value is of.
int64_t elements_of(const at::Tensor& images, const std::vector<int64_t>& dim) {
  int64_t count = 1;
  for (const int64_t d : dim) {
    if (d < -images.dim() || d >= images.dim()) {
      throw Error("PeakSignalNoiseRatio: .dim has " + std::to_string(d) + ", and preds and target have the shape " +
                  shape_of(images) + ". Give dimensions that they have.");
    }
    count *= images.size(d);
  }
  return count;
}

at::Tensor clamped_to(const at::Tensor& images, const std::array<double, 2>* range) {
  return range == nullptr ? images : at::clamp(images, (*range)[0], (*range)[1]);
}

}  // namespace

PeakSignalNoiseRatio::PeakSignalNoiseRatio(PeakSignalNoiseRatioOptions options)
    : options_(checked(std::move(options), "PeakSignalNoiseRatioOptions")) {
  const bool is_one = options_.dim.empty();
  add_state("sum_squared_error", is_one ? StateReduce::sum : StateReduce::cat,
            is_one ? at::zeros({}, at::kDouble) : at::Tensor());
  add_state("total", is_one ? StateReduce::sum : StateReduce::cat, is_one ? at::zeros({}, at::kLong) : at::Tensor());
}

void PeakSignalNoiseRatio::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  const auto* range = std::get_if<1>(&options_.data_range);
  if (!options_.dim.empty()) {
    const int64_t elements = elements_of(batch.preds, options_.dim);
    begin_update(batch.preds.device());
    const at::Tensor error = at::square(at::sub(clamped_to(batch.preds, range), clamped_to(batch.target, range)));
    const at::Tensor sums = at::sum(error, options_.dim, /*keepdim=*/false, at::kDouble).flatten();
    append(0, sums);
    append(1, at::full_like(sums, static_cast<double>(elements)));
    return;
  }
  begin_update(batch.preds.device());
  const int64_t count = batch.preds.numel();
  if (batch.on_cpu()) {
    double* sum = state(0).mutable_data_ptr<double>();
    with_values(batch, [&](const auto* x, const auto* y) {
      if (range == nullptr) {
        add_squared_errors(x, y, count, 1, sum);
      } else {
        *sum += clamped_squared_errors(x, y, count, (*range)[0], (*range)[1]);
      }
    });
    *state(1).mutable_data_ptr<int64_t>() += count;
    return;
  }
  const at::Tensor error = at::square(at::sub(clamped_to(batch.preds, range), clamped_to(batch.target, range)));
  state(0).add_(at::sum(error, at::kDouble));
  state(1).add_(count);
}

at::Tensor PeakSignalNoiseRatio::compute() const {
  const bool is_one = options_.dim.empty();
  const at::Tensor error = is_one ? at::div(state(0), state(1)) : at::div(rows(0), rows(1));
  const double span = std::log(PeakSignalNoiseRatioOptions::span(options_.data_range));
  const at::Tensor values =
      at::mul(at::sub(at::full_like(error, 2 * span), at::log(error)), 10 / std::log(options_.base));
  if (options_.reduction == ImageReduction::none) return values;
  return options_.reduction == ImageReduction::sum ? values.sum() : values.mean();
}

}  // namespace levin::metrics
