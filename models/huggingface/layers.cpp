#include "levin/models/huggingface/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>

namespace levin::huggingface {

namespace {

// LibTorch's modules draw starting weights when they are made: made small, their parameters then get their sizes.
void resize_parameter(at::Tensor& parameter, at::IntArrayRef sizes) {
  parameter.set_data(at::empty(sizes, parameter.options()));
}

}  // namespace

std::shared_ptr<torch::nn::Module> add_part(torch::nn::Module& module, const std::string& name) {
  return module.register_module(name, std::make_shared<torch::nn::Module>());
}

void start_linear(const std::string& name, at::Tensor& parameter, double deviation) {
  if (name == "bias") {
    parameter.zero_();
  } else {
    parameter.normal_(0, deviation);
  }
}

Linear::Linear(int64_t in, int64_t out, bool has_bias)
    : torch::nn::LinearImpl(torch::nn::LinearOptions(1, 1).bias(has_bias)) {
  options = torch::nn::LinearOptions(in, out).bias(has_bias);
  resize_parameter(weight, {out, in});
  if (has_bias) resize_parameter(bias, {out});
}

at::Tensor Linear::forward(const at::Tensor& x) {
  return at::linear(x, weight, bias);
}

void Linear::start(const std::string& name, at::Tensor& parameter, double deviation) {
  start_linear(name, parameter, deviation);
}

Conv1D::Conv1D(int64_t in, int64_t out, double start_scale) : start_scale_(start_scale) {
  weight_ = register_parameter("weight", at::empty({in, out}));
  bias_ = register_parameter("bias", at::empty({out}));
}

at::Tensor Conv1D::forward(const at::Tensor& x) {
  return at::linear(x, weight_.t(), bias_);
}

void Conv1D::start(const std::string& name, at::Tensor& parameter, double deviation) {
  start_linear(name, parameter, deviation * start_scale_);
}

Embedding::Embedding(int64_t rows, int64_t width, std::optional<int64_t> padding)
    : torch::nn::EmbeddingImpl(torch::nn::EmbeddingOptions(1, 1)), padding_(padding.value_or(-1)) {
  options = torch::nn::EmbeddingOptions(rows, width);
  if (padding) options.padding_idx(*padding);
  resize_parameter(weight, {rows, width});
}

at::Tensor Embedding::forward(const at::Tensor& ids) {
  return at::embedding(weight, ids, padding_);
}

void Embedding::start(const std::string&, at::Tensor& parameter, double deviation) {
  parameter.normal_(0, deviation);
  if (padding_ >= 0) parameter.select(0, padding_).zero_();
}

void SinusoidalEmbedding::start(const std::string&, at::Tensor& parameter, double) {
  const int64_t width = parameter.size(1);
  const at::Tensor places = at::arange(parameter.size(0), at::kDouble).unsqueeze(1);
  const at::Tensor exponents = at::arange(0, width, 2, at::kDouble) / static_cast<double>(width);
  const at::Tensor angles = places * at::pow(10000.0, exponents).reciprocal();
  parameter.slice(1, 0, width, 2).copy_(angles.sin());
  parameter.slice(1, 1, width, 2).copy_(angles.cos().slice(1, 0, width / 2));
}

LayerNorm::LayerNorm(int64_t width, double eps)
    : torch::nn::LayerNormImpl(torch::nn::LayerNormOptions({width}).eps(eps)) {}

void LayerNorm::start(const std::string& name, at::Tensor& parameter, double) {
  parameter.fill_(name == "weight" ? 1 : 0);
}

RMSNorm::RMSNorm(int64_t width, double eps, bool is_gemma) : eps_(eps), is_gemma_(is_gemma) {
  weight_ = register_parameter("weight", at::empty({width}));
}

at::Tensor RMSNorm::forward(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scaled = wide * at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + eps_);
  if (is_gemma_) return (scaled * (1 + weight_.to(at::kFloat))).to(x.scalar_type());
  return weight_ * scaled.to(x.scalar_type());
}

void RMSNorm::start(const std::string&, at::Tensor& parameter, double) {
  parameter.fill_(is_gemma_ ? 0 : 1);
}

}  // namespace levin::huggingface
