// LoRA of one linear layer (Hu et al. 2021, https://arxiv.org/abs/2106.09685): its output plus
// scaling * B A dropout(x), with the layer's own weight frozen. Internal; users see adapters/lora.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "levin/adapters/quantized_weight.h"
#include "levin/dispatch/observed_weight.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// What an adapter's output is multiplied with: lora_alpha / r, or lora_alpha / sqrt(r) (Kalajdzievski 2023,
/// https://arxiv.org/abs/2312.03732). The options are resolved: they have r, lora_alpha and use_rslora.
[[nodiscard]] double lora_scaling(const LoRAOptions& resolved);

/// A linear layer by its name: a module with a parameter "weight" of two dimensions.
struct LinearLayer {
  std::string name;
  torch::nn::Module* module = nullptr;
  bool is_in_out = false;  // GPT-2's Conv1D

  [[nodiscard]] at::Tensor weight() const;
  [[nodiscard]] int64_t in() const { return weight().size(is_in_out ? 0 : 1); }
  [[nodiscard]] int64_t out() const { return weight().size(is_in_out ? 1 : 0); }
};

class LoRALayer final : public WeightObserver {
 public:
  /// Registers lora_A.weight (r, in) and lora_B.weight (out, r) in the layer's module, of its weight's type and on its
  /// device, freezes the weight, quantizes it if asked to, and observes it. Draws A from the default generator.
  static std::shared_ptr<LoRALayer> add_to(const LinearLayer& layer, std::shared_ptr<const LoRAOptions> resolved);
  /// That of a module; null if it has none.
  static std::shared_ptr<LoRALayer> of(const torch::nn::Module& module);

  at::Tensor product(const WeightProduct& call) override;
  [[nodiscard]] bool is_in_out() const override { return form_.is_in_out; }
  void check_other_use(const std::string& operator_name) const override;
  [[nodiscard]] bool keeps_dtype() const override { return is_quantized(); }

  /// Makes sure that the weight is still observed, after something has replaced its value.
  void observe_again();
  /// Removes lora_A and lora_B; the weight is a plain parameter again, frozen, and in its first type.
  void remove();

  [[nodiscard]] at::Tensor weight() const { return weight_; }
  [[nodiscard]] at::Tensor lora_A() const { return a_; }
  [[nodiscard]] at::Tensor lora_B() const { return b_; }
  [[nodiscard]] at::Tensor scales() const { return scales_; }  // undefined unless quantized
  /// Those of the whole adapter, resolved.
  [[nodiscard]] const std::shared_ptr<const LoRAOptions>& options() const { return options_; }
  [[nodiscard]] bool is_quantized() const { return options_->quantize != Quantize::none; }
  [[nodiscard]] int64_t in() const { return a_.size(1); }
  [[nodiscard]] int64_t out() const { return b_.size(0); }
  /// How often the weight was multiplied with, in any thread.
  [[nodiscard]] int64_t uses() const { return uses_; }

  /// weight + scaling * B A in the weight's own shape and first type, from these values of weight, A and B (a strategy
  /// may shard the layer's own). Without a graph.
  [[nodiscard]] at::Tensor merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) const;

 private:
  class Matrix;
  LoRALayer(const LinearLayer& layer, std::shared_ptr<const LoRAOptions> resolved);
  void quantize();
  void start_weights();
  [[nodiscard]] at::Tensor update_of(const at::Tensor& input) const;

  std::string name_;
  torch::nn::Module* module_;  // owns the matrices, which own this
  const Matrix* mode_ = nullptr;
  std::shared_ptr<const LoRAOptions> options_;
  QuantizedForm form_;
  at::Tensor weight_, a_, b_, scales_;
  std::atomic<int64_t> uses_ = 0;
};

}  // namespace levin
