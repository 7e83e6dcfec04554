#include "levin/adapters/lora_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <array>
#include <cmath>
#include <string_view>

#include "levin/core/error.h"

namespace levin {

// lora_A or lora_B as a module, so that the parameters' names are PEFT's: q_proj.lora_A.weight. lora_A owns the layer:
// the observation ends with the model.
class LoRALayer::Matrix : public torch::nn::Module {
 public:
  Matrix(at::Tensor value, std::shared_ptr<LoRALayer> of)
      : torch::nn::Module("LoRAMatrix"), layer(std::move(of)), weight(register_parameter("weight", std::move(value))) {}
  ~Matrix() override {
    if (layer != nullptr) end_observation(layer->weight_);
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  std::shared_ptr<LoRALayer> layer;
  at::Tensor weight;
};

namespace {

// They would compute with the bits as if those were the matrix.
constexpr std::array<std::string_view, 14> kComputing = {
    "aten::mul",   "aten::add",    "aten::sub", "aten::div", "aten::embedding", "aten::matmul", "aten::mm",
    "aten::addmm", "aten::linear", "aten::bmm", "aten::sum", "aten::einsum",    "aten::index",  "aten::norm"};

}  // namespace

double lora_scaling(const LoRAOptions& resolved) {
  const auto rank = static_cast<double>(resolved.r.value());
  return resolved.lora_alpha.value() / (resolved.use_rslora.value() ? std::sqrt(rank) : rank);
}

at::Tensor LinearLayer::weight() const {
  return module->named_parameters(/*recurse=*/false)["weight"];
}

LoRALayer::LoRALayer(const LinearLayer& layer, std::shared_ptr<const LoRAOptions> resolved)
    : name_(layer.name), module_(layer.module), options_(std::move(resolved)), weight_(layer.weight()) {
  form_ = {options_->quantize, weight_.sizes().vec(), layer.is_in_out, weight_.scalar_type()};
  const auto options = weight_.options().requires_grad(false);
  a_ = at::empty({*options_->r, layer.in()}, options);
  b_ = at::zeros({layer.out(), *options_->r}, options);
}

std::shared_ptr<LoRALayer> LoRALayer::add_to(const LinearLayer& layer, std::shared_ptr<const LoRAOptions> resolved) {
  const std::shared_ptr<LoRALayer> made(new LoRALayer(layer, std::move(resolved)));
  const at::NoGradGuard no_grad;
  made->start_weights();
  made->weight_.set_requires_grad(false);
  if (made->is_quantized()) made->quantize();
  const auto a = layer.module->register_module("lora_A", std::make_shared<Matrix>(made->a_, made));
  const auto b = layer.module->register_module("lora_B", std::make_shared<Matrix>(made->b_, nullptr));
  a->train(layer.module->is_training());
  b->train(layer.module->is_training());
  made->a_ = a->weight;
  made->b_ = b->weight;
  made->mode_ = a.get();
  observe_weight(made->weight_, made);
  return made;
}

std::shared_ptr<LoRALayer> LoRALayer::of(const torch::nn::Module& module) {
  for (const auto& child : module.children()) {
    if (const auto* matrix = dynamic_cast<const Matrix*>(child.get()); matrix != nullptr && matrix->layer != nullptr) {
      return matrix->layer;
    }
  }
  return nullptr;
}

// kaiming_uniform_ with a = sqrt(5), as torch::nn::Linear's weight: within 1 / sqrt(in).
void LoRALayer::start_weights() {
  if (options_->init_lora_weights == LoRAInit::gaussian) {
    a_.normal_(0, 1 / static_cast<double>(*options_->r));
    return;
  }
  const double bound = 1 / std::sqrt(static_cast<double>(a_.size(1)));
  a_.uniform_(-bound, bound);
}

void LoRALayer::quantize() {
  const QuantizedWeight bits = quantize_weight(weight_.detach(), form_);
  const auto holder = module_->register_module("quantized", std::make_shared<torch::nn::Module>("QuantizedScales"));
  scales_ = holder->register_buffer("scales", bits.scales);
  weight_.set_data(bits.values);
}

void LoRALayer::observe_again() {
  if (!is_observed(weight_)) observe_weight(weight_, std::static_pointer_cast<LoRALayer>(mode_->layer));
}

at::Tensor LoRALayer::update_of(const at::Tensor& input) const {
  at::Tensor x = input.to(a_.scalar_type());
  if (options_->lora_dropout > 0) x = at::dropout(x, options_->lora_dropout, mode_->is_training());
  return at::linear(at::linear(x, a_), b_);
}

at::Tensor LoRALayer::product(const WeightProduct& call) {
  uses_.fetch_add(1, std::memory_order_relaxed);
  at::Tensor base;
  if (is_quantized()) {
    base = quantized_linear(call.input, {call.weight, scales_}, form_);
    if (call.bias.defined()) base = base + call.bias.to(base.scalar_type());
  } else {
    base = call.unchanged();
  }
  return base.add(update_of(call.input).to(base.scalar_type()), lora_scaling(*options_));
}

void LoRALayer::check_other_use(const std::string& operator_name) const {
  if (!is_quantized()) return;
  for (const std::string_view name : kComputing) {
    if (operator_name != name) continue;
    throw Error("LoRA: " + operator_name + " computes with the weight of " + name_ +
                ", which is quantized and fit for the layer's own product alone. Name the layer in exclude_modules.");
  }
}

at::Tensor LoRALayer::merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) const {
  const at::NoGradGuard no_grad;
  const at::Tensor plain = without_observed_key(weight);  // its to() would keep the type of the bits
  const auto wide = form_.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor update = at::matmul(b.to(wide), a.to(wide)) * lora_scaling(*options_);
  const at::Tensor base = is_quantized() ? dequantize_weight({plain, scales_}, form_, wide) : plain.to(wide);
  return (base + (form_.is_in_out ? update.t() : update)).to(form_.dtype);
}

void LoRALayer::remove() {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<LoRALayer> alive = mode_->layer;
  forget_weight(weight_);
  if (is_quantized()) {
    weight_.set_data(dequantize_weight({weight_, scales_}, form_, form_.dtype));
    module_->unregister_module("quantized");
  }
  module_->unregister_module("lora_B");
  module_->unregister_module("lora_A");
}

}  // namespace levin
