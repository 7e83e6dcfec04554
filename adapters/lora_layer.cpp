#include "levin/adapters/lora_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "levin/core/added_part.h"
#include "levin/core/error.h"

namespace levin {

// A or B as a module, so that the parameters' names are PEFT's: q_proj.lora_A.weight.
class LoRALayer::Matrix : public torch::nn::Module {
 public:
  explicit Matrix(at::Tensor value)
      : torch::nn::Module("LoRAMatrix"), weight(register_parameter("weight", std::move(value))) {}
  at::Tensor weight;
};

// A, which owns the layer: the observation ends with the model.
class LoRALayer::Owner : public Matrix, public AddedPart {
 public:
  Owner(at::Tensor value, std::shared_ptr<LoRALayer> of) : Matrix(std::move(value)), layer(std::move(of)) {}
  ~Owner() override { end_observation(layer->weight_); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  void take_out() override { layer->take_out(); }
  void put_back() override { layer->put_back(); }
  void add_to(torch::nn::Module& copy) override { layer->add_copy_to(copy); }

  std::shared_ptr<LoRALayer> layer;
};

namespace {

constexpr const char* kScales = "quantized";

// They would compute with the bits as if those were the matrix.
constexpr std::array<std::string_view, 14> kComputing = {
    "aten::mul",   "aten::add",    "aten::sub", "aten::div", "aten::embedding", "aten::matmul", "aten::mm",
    "aten::addmm", "aten::linear", "aten::bmm", "aten::sum", "aten::einsum",    "aten::index",  "aten::norm"};

}  // namespace

double lora_scaling(const LoRAOptions& resolved) {
  const auto rank = static_cast<double>(resolved.r.value());
  return resolved.lora_alpha.value() / (resolved.use_rslora.value() ? std::sqrt(rank) : rank);
}

LoRALayer::LoRALayer(const TargetLayer& layer, std::shared_ptr<const LoRAOptions> resolved)
    : layer_(layer), options_(std::move(resolved)), weight_(layer.weight()) {
  form_ = {options_->quantize, weight_.sizes().vec(), layer.is_in_out, weight_.scalar_type()};
  const auto options = weight_.options().requires_grad(false);
  a_ = at::empty(layer.a_shape(*options_->r), options);
  b_ = at::empty(layer.b_shape(*options_->r), options);
}

std::shared_ptr<LoRALayer> LoRALayer::add_to(const TargetLayer& layer, std::shared_ptr<const LoRAOptions> resolved) {
  const std::shared_ptr<LoRALayer> made(new LoRALayer(layer, std::move(resolved)));
  const at::NoGradGuard no_grad;
  layer.start(made->a_, made->b_, made->options_->init_lora_weights);
  made->weight_.set_requires_grad(false);
  if (made->is_quantized()) made->quantize();
  made->register_parts(made);
  return made;
}

void LoRALayer::register_parts(const std::shared_ptr<LoRALayer>& self) {
  torch::nn::Module& module = *layer_.module;
  const auto a = module.register_module(layer_.a_name(), std::make_shared<Owner>(a_, self));
  const auto b = module.register_module(layer_.b_name(), std::make_shared<Matrix>(b_));
  a->train(module.is_training());
  b->train(module.is_training());
  a_ = a->weight;
  b_ = b->weight;
  owner_ = a.get();
  observe_weight(weight_, self);
}

std::shared_ptr<LoRALayer> LoRALayer::of(const torch::nn::Module& module) {
  for (const auto& child : module.children()) {
    if (const auto* owner = dynamic_cast<const Owner*>(child.get())) return owner->layer;
  }
  return nullptr;
}

void LoRALayer::quantize() {
  const QuantizedWeight bits = quantize_weight(weight_.detach(), form_);
  hold_scales(bits.scales);
  weight_.set_data(bits.values);
}

void LoRALayer::hold_scales(const at::Tensor& scales) {
  const auto holder = std::make_shared<torch::nn::Module>("QuantizedScales");
  layer_.module->register_module(kScales, holder);
  scales_ = holder->register_buffer("scales", scales);
}

void LoRALayer::take_out() {
  const auto children = layer_.module->named_children();
  for (const std::string& name : {std::string(kScales), layer_.a_name(), layer_.b_name()}) {
    const auto* part = children.find(name);
    if (part == nullptr) continue;
    taken_out_.emplace_back(name, *part);
    layer_.module->unregister_module(name);
  }
  if (!is_quantized()) return;  // bits cannot replace the parameter that a layer's reset() makes
  bits_ = without_observed_key(weight_);
  weight_.set_data(at::zeros({1}, bits_.options().dtype(form_.dtype)).expand(form_.shape));
}

void LoRALayer::put_back() {
  if (is_quantized()) weight_.set_data(with_observed_key(std::exchange(bits_, {})));
  for (const auto& [name, part] : taken_out_) layer_.module->register_module(name, part);
  taken_out_.clear();
}

void LoRALayer::add_copy_to(torch::nn::Module& copy) const {
  TargetLayer layer = layer_;
  layer.module = &copy;
  const std::shared_ptr<LoRALayer> made(new LoRALayer(layer, options_));
  const at::NoGradGuard no_grad;
  made->form_ = form_;
  made->weight_.set_requires_grad(false);
  made->a_ = at::empty_like(a_, made->weight_.device());
  made->b_ = at::empty_like(b_, made->weight_.device());
  if (is_quantized()) {
    made->hold_scales(at::empty_like(scales_, made->weight_.device()));
    made->weight_.set_data(at::empty_like(bits_, made->weight_.device()));
  }
  made->register_parts(made);
}

void LoRALayer::observe_again() {
  if (!is_observed(weight_)) observe_weight(weight_, std::static_pointer_cast<LoRALayer>(owner_->layer));
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
  const double dropout = owner_->is_training() ? options_->lora_dropout : 0;
  return base.add(layer_.update_of(call, a_, b_, dropout).to(base.scalar_type()), lora_scaling(*options_));
}

void LoRALayer::check_other_use(const std::string& operator_name) const {
  if (!is_quantized()) return;
  for (const std::string_view name : kComputing) {
    if (operator_name != name) continue;
    throw Error("LoRA: " + operator_name + " computes with the weight of " + layer_.name +
                ", which is quantized and fit for the layer's own product alone. Name the layer in exclude_modules.");
  }
}

at::Tensor LoRALayer::merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) const {
  const at::NoGradGuard no_grad;
  const at::Tensor plain = without_observed_key(weight);  // its to() would keep the type of the bits
  const auto wide = form_.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor update = layer_.weight_update(a.to(wide), b.to(wide)) * lora_scaling(*options_);
  const at::Tensor base = is_quantized() ? dequantize_weight({plain, scales_}, form_, wide) : plain.to(wide);
  return (base + update).to(form_.dtype);
}

void LoRALayer::remove() {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<LoRALayer> alive = owner_->layer;
  forget_weight(weight_);
  if (is_quantized()) {
    weight_.set_data(dequantize_weight({weight_, scales_}, form_, form_.dtype));
    layer_.module->unregister_module(kScales);
  }
  layer_.module->unregister_module(layer_.b_name());
  layer_.module->unregister_module(layer_.a_name());
}

}  // namespace levin
