#include "levin/metrics/image.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/split.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "levin/core/options/error.h"
#include "levin/metrics/image_loops.h"
#include "levin/metrics/pair_batch.h"
#include "levin/metrics/pair_loops.h"

namespace levin::metrics {

namespace {

// The number of elements along the dimensions of one value.
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

using SsimOptions = StructuralSimilarityIndexMeasureOptions;

// One weight per pixel along each dimension; their sum is 1.
using Window = std::vector<std::vector<double>>;

template <class T>
std::vector<T> per_dimension(const std::variant<T, std::vector<T>>& given, size_t dimensions, const char* what) {
  const auto* list = std::get_if<1>(&given);
  if (list == nullptr) return std::vector<T>(dimensions, std::get<0>(given));
  if (list->size() == dimensions) return *list;
  throw Error(std::string("StructuralSimilarityIndexMeasure: .") + what + " has " + std::to_string(list->size()) +
              " values, and the images have " + std::to_string(dimensions) +
              " dimensions besides N and C. Give one value, or one for each.");
}

std::vector<double> gaussian(double sigma) {
  const int64_t half = static_cast<int64_t>(3.5 * sigma + 0.5);
  std::vector<double> weights;
  double sum = 0;
  for (int64_t k = -half; k <= half; ++k) {
    const double distance = static_cast<double>(k) / sigma;
    weights.push_back(std::exp(-distance * distance / 2));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

Window window_for(const SsimOptions& options, const at::Tensor& images) {
  const auto dimensions = static_cast<size_t>(images.dim() - 2);
  const auto sigma = per_dimension(options.sigma, dimensions, "sigma");
  const auto size = per_dimension(options.kernel_size, dimensions, "kernel_size");
  Window window;
  for (size_t d = 0; d < dimensions; ++d) {
    window.push_back(options.gaussian_kernel
                         ? gaussian(sigma[d])
                         : std::vector<double>(static_cast<size_t>(size[d]), 1.0 / static_cast<double>(size[d])));
    const int64_t half = static_cast<int64_t>(window[d].size() / 2);
    if (images.size(static_cast<int64_t>(d) + 2) <= half) {
      throw Error("StructuralSimilarityIndexMeasure: preds and target have the shape " + shape_of(images) +
                  ", and the kernel is " + std::to_string(window[d].size()) +
                  " pixels long. Give images with more than " + std::to_string(half) +
                  " pixels on each side, or lower " + (options.gaussian_kernel ? ".sigma." : ".kernel_size."));
    }
  }
  return window;
}

// The range of the values of a batch: a number on the batch's device.
at::Tensor found_range(const PairBatch& batch) {
  return at::maximum(batch.preds.max() - batch.preds.min(), batch.target.max() - batch.target.min());
}

at::Tensor similarities_on_cpu(const PairBatch& batch, const Window& window, double range, const SsimOptions& options,
                               const std::array<double, 2>* bounds) {
  SimilarityWindow each{window[0], window[1], std::pow(options.k1 * range, 2), std::pow(options.k2 * range, 2)};
  if (bounds != nullptr) {
    each.clamps = true;
    each.low = (*bounds)[0];
    each.high = (*bounds)[1];
  }
  const int64_t channels = batch.preds.size(1), height = batch.preds.size(2), width = batch.preds.size(3);
  const int64_t planes = batch.preds.size(0) * channels;
  at::Tensor values = at::empty({planes}, at::kDouble);
  double* into = values.mutable_data_ptr<double>();
  with_values(batch, [&](const auto* x, const auto* y) {
    at::parallel_for(0, planes, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        into[p] = plane_similarity(x + p * height * width, y + p * height * width, height, width, each);
      }
    });
  });
  return values.reshape({batch.preds.size(0), channels}).mean(1);
}

// All channels with one kernel, the product of the windows of all dimensions.
at::Tensor kernel_of(const Window& window, int64_t channels, const at::Tensor& like) {
  at::Tensor kernel = at::ones({}, at::kDouble);
  std::vector<int64_t> shape = {channels, 1};
  for (const auto& weights : window) {
    kernel = kernel.unsqueeze(-1) * at::tensor(weights, at::kDouble);
    shape.push_back(static_cast<int64_t>(weights.size()));
  }
  return kernel.to(like.device(), like.scalar_type()).expand(shape).contiguous();
}

at::Tensor similarities_by_operators(const at::Tensor& preds, const at::Tensor& target, const Window& window,
                                     const at::Tensor& c1, const at::Tensor& c2) {
  std::vector<int64_t> padding;  // of the last dimension first
  for (auto weights = window.rbegin(); weights != window.rend(); ++weights) {
    padding.insert(padding.end(), 2, static_cast<int64_t>(weights->size() / 2));
  }
  const at::Tensor x = at::pad(preds, padding, "reflect");
  const at::Tensor y = at::pad(target, padding, "reflect");
  const at::Tensor all = at::cat({x, y, x * x, y * y, x * y});
  const int64_t channels = preds.size(1);
  const at::Tensor kernel = kernel_of(window, channels, preds);
  const at::Tensor filtered = window.size() == 2 ? at::conv2d(all, kernel, {}, 1, at::IntArrayRef{0}, 1, channels)
                                                 : at::conv3d(all, kernel, {}, 1, at::IntArrayRef{0}, 1, channels);
  const auto means = at::split(filtered, preds.size(0));
  const at::Tensor xx = means[0] * means[0];
  const at::Tensor yy = means[1] * means[1];
  const at::Tensor xy = means[0] * means[1];
  const at::Tensor spread = at::clamp_min(means[2] - xx, 0) + at::clamp_min(means[3] - yy, 0);
  const at::Tensor index = (xy * 2 + c1) * ((means[4] - xy) * 2 + c2) / ((xx + yy + c1) * (spread + c2));
  return index.flatten(1).mean(1, false, at::kDouble);
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
        add_errors<true>(x, y, count, 1, sum);
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

bool SsimOptions::is_positive(const std::variant<double, std::vector<double>>& sigma) {
  const auto* list = std::get_if<1>(&sigma);
  if (list == nullptr) return std::get<0>(sigma) > 0;
  return std::all_of(list->begin(), list->end(), [](double one) { return one > 0; });
}

bool SsimOptions::is_odd(const std::variant<int64_t, std::vector<int64_t>>& size) {
  const auto* list = std::get_if<1>(&size);
  const auto odd = [](int64_t one) { return one > 0 && one % 2 == 1; };
  return list == nullptr ? odd(std::get<0>(size)) : std::all_of(list->begin(), list->end(), odd);
}

StructuralSimilarityIndexMeasure::StructuralSimilarityIndexMeasure(StructuralSimilarityIndexMeasureOptions options)
    : options_(checked(std::move(options), "StructuralSimilarityIndexMeasureOptions")) {
  if (options_.reduction == ImageReduction::none) {
    add_state("similarities", StateReduce::cat);
    return;
  }
  add_state("similarity", StateReduce::sum, at::zeros({}, at::kDouble));
  add_state("total", StateReduce::sum, at::zeros({}, at::kLong));
}

void StructuralSimilarityIndexMeasure::update(const at::Tensor& preds, const at::Tensor& target) {
  const PlainOps plain;
  const PairBatch batch = pair_batch(name(), preds, target);
  if (batch.preds.dim() != 4 && batch.preds.dim() != 5) {
    throw Error(name() + ": preds and target have the shape " + shape_of(preds) +
                ". Give images (N, C, H, W), or volumes (N, C, D, H, W).");
  }
  const Window window = window_for(options_, batch.preds);
  begin_update(batch.preds.device());
  if (batch.preds.numel() == 0) return;
  const auto* bounds = options_.data_range ? std::get_if<1>(&*options_.data_range) : nullptr;
  const bool in_loops = batch.on_cpu() && batch.preds.dim() == 4;
  at::Tensor range;
  if (options_.data_range) {
    const double given = bounds != nullptr ? (*bounds)[1] - (*bounds)[0] : std::get<0>(*options_.data_range);
    range = at::full({}, given, batch.preds.options());
  } else {
    range = found_range(batch);
  }
  at::Tensor values;
  if (in_loops) {
    values = similarities_on_cpu(batch, window, range.item<double>(), options_, bounds);
  } else {
    const at::Tensor c1 = (range * options_.k1).square();
    const at::Tensor c2 = (range * options_.k2).square();
    values =
        similarities_by_operators(clamped_to(batch.preds, bounds), clamped_to(batch.target, bounds), window, c1, c2);
  }
  if (options_.reduction == ImageReduction::none) {
    append(0, values);
  } else {
    state(0).add_(values.sum());
    state(1).add_(values.size(0));
  }
}

at::Tensor StructuralSimilarityIndexMeasure::compute() const {
  if (options_.reduction == ImageReduction::none) return rows(0);
  return options_.reduction == ImageReduction::sum ? state(0).clone() : state(0) / state(1);
}

}  // namespace levin::metrics
