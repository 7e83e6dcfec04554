#include "levin/adapters/target_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "levin/core/error.h"

namespace levin {

namespace {

constexpr std::array<std::string_view, 5> kMatrices = {"lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B",
                                                       kMagnitude};

constexpr std::array<int64_t, 1> kOne = {1}, kZero = {0}, kLast = {-1};

// B's own convolution: of size 1, in the layer's groups.
at::Tensor pointwise(const at::Tensor& x, const at::Tensor& b, int64_t groups) {
  const at::IntArrayRef one(kOne), zero(kZero);
  switch (b.dim()) {
    case 3: return at::conv1d(x, b, {}, one, zero, one, groups);
    case 4: return at::conv2d(x, b, {}, one, zero, one, groups);
    default: return at::conv3d(x, b, {}, one, zero, one, groups);
  }
}

}  // namespace

at::Tensor TargetLayer::weight() const {
  return module->named_parameters(/*recurse=*/false)["weight"];
}

std::string TargetLayer::a_name() const {
  return use == WeightUse::embedding ? "lora_embedding_A" : "lora_A";
}

std::string TargetLayer::b_name() const {
  return use == WeightUse::embedding ? "lora_embedding_B" : "lora_B";
}

std::vector<int64_t> TargetLayer::a_shape() const {
  const at::Tensor w = weight();
  if (use == WeightUse::embedding) return {r, w.size(0)};
  if (use == WeightUse::linear) return {r, w.size(is_in_out ? 0 : 1)};
  std::vector<int64_t> shape = w.sizes().vec();
  shape[0] = r;
  shape[1] *= groups;
  return shape;
}

std::vector<int64_t> TargetLayer::b_shape() const {
  const at::Tensor w = weight();
  if (use == WeightUse::embedding) return {w.size(1), r};
  if (use == WeightUse::linear) return {w.size(is_in_out ? 1 : 0), r};
  std::vector<int64_t> shape(static_cast<size_t>(w.dim()), 1);
  shape[0] = w.size(0);
  shape[1] = r / groups;
  return shape;
}

std::vector<int64_t> TargetLayer::magnitude_shape() const {
  const at::Tensor w = weight();
  if (use == WeightUse::embedding) return {w.size(1)};
  if (use == WeightUse::linear) return {w.size(is_in_out ? 1 : 0)};
  std::vector<int64_t> shape(static_cast<size_t>(w.dim()), 1);
  shape[1] = w.size(0);
  return shape;
}

// kaiming_uniform_ with a = sqrt(5), as torch::nn::Linear's weight.
void TargetLayer::start(at::Tensor& a, at::Tensor& b, LoRAInit how) const {
  if (use == WeightUse::embedding) {
    a.zero_();
    b.normal_();
    return;
  }
  b.zero_();
  if (how == LoRAInit::gaussian) {
    a.normal_(0, 1 / static_cast<double>(a.size(0)));
    return;
  }
  const double bound = 1 / std::sqrt(static_cast<double>(a.numel() / a.size(0)));
  a.uniform_(-bound, bound);
}

at::Tensor TargetLayer::update_of(const WeightProduct& call, const at::Tensor& a, const at::Tensor& b,
                                  double dropout) const {
  if (use == WeightUse::embedding) {
    if (max_norm) {
      const at::NoGradGuard no_grad;  // as torch::nn::Embedding does with its weight
      at::Tensor rows = a.t();
      at::embedding_renorm_(rows, call.input, *max_norm, norm_type);
    }
    return at::linear(call.with(call.input, a.t()), b);
  }
  at::Tensor x = call.input.to(a.scalar_type());
  if (dropout > 0) x = at::dropout(x, dropout, /*train=*/true);
  if (use == WeightUse::linear) return at::linear(at::linear(x, a), b);
  if (call.groups != groups) {
    throw Error("LoRA: " + name + " is a convolution in " + std::to_string(call.groups) +
                " groups, which its class does not say. Use torch::nn::Conv1d, Conv2d or Conv3d for it, or name it in "
                "exclude_modules.");
  }
  return pointwise(call.with(x, a), b, groups);
}

// With one group, A and B are convolutions one after the other, the second of size 1: together a convolution of A's
// size, whose kernel is the product of both as matrices (out, r) and (r, in * size …).
at::Tensor TargetLayer::weight_update(const at::Tensor& a, const at::Tensor& b) const {
  check_mergeable();
  if (use == WeightUse::embedding || is_in_out) return at::matmul(b, a).t();
  if (use == WeightUse::linear) return at::matmul(b, a);
  std::vector<int64_t> shape = a.sizes().vec();
  shape[0] = b.size(0);
  return at::matmul(b.flatten(1), a.flatten(1)).view(shape);
}

at::Tensor TargetLayer::norms(const at::Tensor& w) const {
  const bool has_outputs_last = use == WeightUse::embedding || is_in_out;
  const at::Tensor rows = has_outputs_last ? w.t() : w.flatten(1);
  const at::Tensor norms = at::linalg_vector_norm(rows, 2, at::OptionalIntArrayRef(kLast));
  if (use != WeightUse::convolution) return norms;
  std::vector<int64_t> shape(static_cast<size_t>(w.dim()), 1);
  shape[1] = norms.numel();
  return norms.view(shape);
}

at::Tensor TargetLayer::along_output(const at::Tensor& numbers) const {
  return use == WeightUse::convolution ? numbers.squeeze(0) : numbers;
}

at::Tensor TargetLayer::along_weight(const at::Tensor& numbers) const {
  if (use == WeightUse::convolution) return numbers.transpose(0, 1);
  return use == WeightUse::embedding || is_in_out ? numbers : numbers.unsqueeze(-1);
}

void TargetLayer::check_mergeable() const {
  if (groups == 1) return;
  throw Error("LoRA: the adapter of " + name + " cannot be merged: a convolution in " + std::to_string(groups) +
              " groups has no weights for all the channels that lora_A sees. Keep the adapter apart (save_to of LoRA, "
              "save_lora).");
}

bool is_adapter_matrix(const std::string& name) {
  return std::any_of(kMatrices.begin(), kMatrices.end(), [&](std::string_view matrix) {
    return name == matrix || name.ends_with("." + std::string(matrix));
  });
}

}  // namespace levin
