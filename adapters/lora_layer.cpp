#include "levin/adapters/lora_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/weight_use.h"

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

constexpr const char* kScales = "quantized";

// These operators would compute with the quantized values as if they were the matrix.
constexpr std::array<std::string_view, 14> kComputing = {
    "aten::mul",   "aten::add",    "aten::sub", "aten::div", "aten::embedding", "aten::matmul", "aten::mm",
    "aten::addmm", "aten::linear", "aten::bmm", "aten::sum", "aten::einsum",    "aten::index",  "aten::norm"};

double scaling_of(int64_t r, double lora_alpha, bool use_rslora) {
  const auto rank = static_cast<double>(r);
  return lora_alpha / (use_rslora ? std::sqrt(rank) : rank);
}

// The shape of numbers, one for each output of a layer: (out), or (1, out, 1 …) for a convolution.
std::vector<int64_t> per_output(int64_t outputs, int64_t dims, WeightUse use) {
  if (use != WeightUse::convolution) return {outputs};
  std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
  shape[1] = outputs;
  return shape;
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
  return per_output(b_shape()[0], weight().dim(), use);
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
  return norms.view(per_output(norms.numel(), w.dim(), use));
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

// A, B or the magnitudes as a module, so that the parameters' names are PEFT's: q_proj.lora_A.weight.
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

double lora_scaling(const LoRAOptions& resolved) {
  return scaling_of(resolved.r.value(), resolved.lora_alpha.value(), resolved.use_rslora.value());
}

LoRALayer::LoRALayer(const TargetLayer& layer, std::shared_ptr<const ResolvedLoRA> resolved)
    : layer_(layer), options_(std::move(resolved)), weight_(layer.weight()) {
  form_ = {options_->quantize, weight_.sizes().vec(), layer.is_in_out, weight_.scalar_type()};
  const auto options = weight_.options().requires_grad(false);
  a_ = at::empty(layer.a_shape(), options);
  b_ = at::empty(layer.b_shape(), options);
  if (options_->use_dora.value()) magnitude_ = at::empty(layer.magnitude_shape(), options);
}

double LoRALayer::scaling() const {
  return scaling_of(layer_.r, layer_.lora_alpha, options_->use_rslora.value());
}

std::shared_ptr<LoRALayer> LoRALayer::add_to(const TargetLayer& layer, std::shared_ptr<const ResolvedLoRA> resolved) {
  const std::shared_ptr<LoRALayer> made(new LoRALayer(layer, std::move(resolved)));
  const at::NoGradGuard no_grad;
  layer.start(made->a_, made->b_, made->options_->init_lora_weights);
  made->weight_.set_requires_grad(false);
  if (made->is_quantized()) made->quantize();
  if (made->magnitude_.defined()) made->magnitude_.copy_(layer.norms(made->sum(made->weight_, made->a_, made->b_)));
  made->register_parts(made);
  return made;
}

void LoRALayer::register_parts(const std::shared_ptr<LoRALayer>& self) {
  torch::nn::Module& module = *layer_.module;
  const auto a = module.register_module(layer_.a_name(), std::make_shared<Owner>(a_, self));
  const auto b = module.register_module(layer_.b_name(), std::make_shared<Matrix>(b_));
  a->train(module.is_training());
  b->train(module.is_training());
  if (magnitude_.defined()) {
    const auto magnitude = module.register_module(kMagnitude, std::make_shared<Matrix>(magnitude_));
    magnitude->train(module.is_training());
    magnitude_ = magnitude->weight;
  }
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
  for (const std::string& name : {std::string(kScales), std::string(kMagnitude), layer_.a_name(), layer_.b_name()}) {
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
  if (magnitude_.defined()) made->magnitude_ = at::empty_like(magnitude_, made->weight_.device());
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
  if (magnitude_.defined()) return dora_product(call, base, dropout);
  return base.add(layer_.update_of(call, a_, b_, dropout).to(base.scalar_type()), scaling());
}

// Without the bias.
at::Tensor LoRALayer::plain_product(const WeightProduct& call, const at::Tensor& x) const {
  if (is_quantized()) return quantized_linear(x, {call.weight, scales_}, form_);
  if (use() != WeightUse::linear) return call.with(x, call.weight);
  return at::linear(x, is_in_out() ? call.weight.t() : call.weight);
}

// The norms are constants in backward (Liu et al. 2024, section 4.3). As in PEFT, dropout is of the input of both
// products, and what it drops of the weight's own is put back.
at::Tensor LoRALayer::dora_product(const WeightProduct& call, const at::Tensor& base, double dropout) const {
  const at::Tensor factor = layer_.along_output(magnitude_ / layer_.norms(sum(call.weight, a_, b_)));
  WeightProduct seen = call;
  at::Tensor plain = base;
  if (dropout > 0 && use() != WeightUse::embedding) {
    seen.input = at::dropout(call.input, dropout, /*train=*/true);
    plain = plain_product(call, seen.input);
  } else if (call.bias.defined()) {
    plain = base - layer_.along_output(call.bias.to(base.scalar_type()).view(magnitude_.sizes()));
  }
  const at::Tensor update = layer_.update_of(seen, a_, b_, /*dropout=*/0) * scaling();
  return base + ((factor - 1) * plain + factor * update).to(base.scalar_type());
}

// weight + scaling * B A in float32 or wider.
at::Tensor LoRALayer::sum(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) const {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::Tensor plain = without_observed_key(weight);  // its to() would keep the type of the bits
  const auto wide = form_.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor update = layer_.weight_update(a.to(wide), b.to(wide)) * scaling();
  return (is_quantized() ? dequantize_weight({plain, scales_}, form_, wide) : plain.to(wide)) + update;
}

void LoRALayer::check_other_use(const std::string& operator_name) const {
  if (!is_quantized()) return;
  for (const std::string_view name : kComputing) {
    if (operator_name != name) continue;
    throw Error("LoRA: " + operator_name + " computes with the weight of " + layer_.name +
                ", which is quantized and fit for the layer's own product alone. Name the layer in exclude_modules.");
  }
}

at::Tensor LoRALayer::merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b,
                             const at::Tensor& magnitude) const {
  const at::NoGradGuard no_grad;
  const at::Tensor adapted = sum(weight, a, b);
  if (!magnitude.defined()) return adapted.to(form_.dtype);
  return (adapted * layer_.along_weight(magnitude / layer_.norms(adapted))).to(form_.dtype);
}

void LoRALayer::remove() {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<LoRALayer> alive = owner_->layer;
  forget_weight(weight_);
  if (is_quantized()) {
    weight_.set_data(dequantize_weight({weight_, scales_}, form_, form_.dtype));
    layer_.module->unregister_module(kScales);
  }
  if (magnitude_.defined()) layer_.module->unregister_module(kMagnitude);
  layer_.module->unregister_module(layer_.b_name());
  layer_.module->unregister_module(layer_.a_name());
}

}  // namespace levin
