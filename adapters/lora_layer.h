// A layer that LoRA can adapt, and what its kind means for A and B: their shapes, starting values, products. The
// layouts are PEFT's. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/adapters/lora_options.h"
#include "levin/adapters/quantized_weight.h"
#include "levin/libtorch/observed_weight.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// A layer by its name: a module with a parameter "weight".
//
//   kind          weight                          A                          B
//   linear        (out, in), or (in, out)         (r, in)                    (out, r)
//   embedding     (rows, width)                   (r, rows)                  (width, r)
//   convolution   (out, in / groups, size …)      (r, in, size …)            (out, r / groups, 1 …)
//
// DoRA's magnitudes are "lora_magnitude_vector".
struct TargetLayer {
  std::string name;
  torch::nn::Module* module = nullptr;
  WeightUse use = WeightUse::linear;
  bool is_in_out = false;                         // of a linear layer: GPT-2's Conv1D
  int64_t groups = 1;                             // of a convolution
  std::optional<double> max_norm = std::nullopt;  // of an embedding: rows are cut to this norm before they are used
  double norm_type = 2;
  int64_t r = 0;          // of its adapter
  double lora_alpha = 0;  // of its adapter

  [[nodiscard]] at::Tensor weight() const;
  /// Whether `quantize` holds its weight in fewer bits.
  [[nodiscard]] bool can_be_quantized() const { return use == WeightUse::linear; }

  /// "lora_A" or "lora_embedding_A"; the parameter is its "weight".
  [[nodiscard]] std::string a_name() const;
  [[nodiscard]] std::string b_name() const;
  [[nodiscard]] std::vector<int64_t> a_shape() const;
  [[nodiscard]] std::vector<int64_t> b_shape() const;
  /// Of DoRA's magnitudes, one an output: (out), (width), or (1, out, 1 …) of a convolution.
  [[nodiscard]] std::vector<int64_t> magnitude_shape() const;
  /// Fills A and B so that their product is zero. Of an embedding A is zeros and B normal; otherwise B is zeros and A
  /// uniform within 1 / sqrt(in * size …), as torch::nn::Linear's weight, or normal with deviation 1 / r.
  void start(at::Tensor& a, at::Tensor& b, LoRAInit how) const;

  /// B A of the input of a call, before scaling; `dropout` of A's input, which an embedding does not have. Throws Error
  /// for a convolution in other groups than the layer is known to have.
  [[nodiscard]] at::Tensor update_of(const WeightProduct& call, const at::Tensor& a, const at::Tensor& b,
                                     double dropout) const;
  /// B A in the weight's shape. Throws Error for a convolution in several groups, whose A sees channels that the weight
  /// does not have.
  [[nodiscard]] at::Tensor weight_update(const at::Tensor& a, const at::Tensor& b) const;
  /// The norm of what each output has in a weight, in magnitude_shape.
  [[nodiscard]] at::Tensor norms(const at::Tensor& weight) const;
  /// Numbers in magnitude_shape in one that broadcasts with the layer's output, or with its weight.
  [[nodiscard]] at::Tensor along_output(const at::Tensor& numbers) const;
  [[nodiscard]] at::Tensor along_weight(const at::Tensor& numbers) const;
  /// Throws what weight_update throws.
  void check_mergeable() const;
};

inline constexpr const char* kMagnitude = "lora_magnitude_vector";  // the submodule; the parameter is its "weight"

/// Whether a submodule of this name holds an adapter's A, B or magnitudes.
[[nodiscard]] bool is_adapter_matrix(const std::string& name);

// LoRA of one layer (Hu et al. 2021, https://arxiv.org/abs/2106.09685): its output plus scaling * B A dropout(x), with
// the layer's own weight frozen; with DoRA (Liu et al. 2024, https://arxiv.org/abs/2402.09353) the product of the
// weight W + scaling * B A whose outputs have trained norms. Internal; users see adapters/lora.h.

/// What an adapter's output is multiplied with: lora_alpha / r, or lora_alpha / sqrt(r) (Kalajdzievski 2023,
/// https://arxiv.org/abs/2312.03732). The options are resolved: they have r, lora_alpha and use_rslora. Layers of
/// rank_pattern and alpha_pattern have scalings of their own (LoRALayer::scaling).
[[nodiscard]] double lora_scaling(const LoRAOptions& resolved);

/// Options with all that they leave open, and the parameters of the model's own, in full, that its folder had.
struct ResolvedLoRA : LoRAOptions {
  std::set<std::string> brought = {};
};

class LoRALayer final : public WeightObserver {
 public:
  /// `layer` has its r and lora_alpha. Registers A and B in the layer's module, of its weight's type and on its device,
  /// freezes the weight, quantizes it if asked to, and observes it. Draws from the default generator.
  static std::shared_ptr<LoRALayer> add_to(const TargetLayer& layer, std::shared_ptr<const ResolvedLoRA> resolved);
  /// Returns the module's LoRA layer, or null.
  static std::shared_ptr<LoRALayer> of(const torch::nn::Module& module);

  at::Tensor product(const WeightProduct& call) override;
  [[nodiscard]] WeightUse use() const override { return layer_.use; }
  [[nodiscard]] bool is_in_out() const override { return layer_.is_in_out; }
  void check_other_use(const std::string& operator_name) const override;
  [[nodiscard]] bool keeps_dtype() const override { return is_quantized(); }

  /// Makes sure that the weight is still observed, after something has replaced its value.
  void observe_again();
  /// Removes A and B; the weight is a plain parameter again, frozen, and in its first type.
  void remove();

  [[nodiscard]] at::Tensor weight() const { return weight_; }
  [[nodiscard]] at::Tensor lora_A() const { return a_; }
  [[nodiscard]] at::Tensor lora_B() const { return b_; }
  [[nodiscard]] at::Tensor magnitude() const { return magnitude_; }  // undefined without DoRA
  [[nodiscard]] at::Tensor scales() const { return scales_; }        // undefined unless quantized
  [[nodiscard]] double scaling() const;
  /// The resolved options of the whole adapter.
  [[nodiscard]] const std::shared_ptr<const ResolvedLoRA>& options() const { return options_; }
  [[nodiscard]] const TargetLayer& target() const { return layer_; }
  [[nodiscard]] bool is_quantized() const { return options_->quantize != Quantize::none && layer_.can_be_quantized(); }
  /// How often the layer's product was computed, in any thread.
  [[nodiscard]] int64_t uses() const { return uses_; }

  // Around a copy of the layer's module, which cannot be made with A and B in it (core/weight_use.h).
  void take_out();
  void put_back();
  void add_copy_to(torch::nn::Module& copy) const;  // between the two

  /// weight + scaling * B A in the weight's own shape and first type, from these values of weight, A and B (a strategy
  /// may shard the layer's own), its outputs of the norms `magnitude` if that is defined. Without a graph. Throws what
  /// TargetLayer::check_mergeable throws.
  [[nodiscard]] at::Tensor merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b,
                                  const at::Tensor& magnitude = {}) const;

 private:
  class Matrix;
  class Owner;
  LoRALayer(const TargetLayer& layer, std::shared_ptr<const ResolvedLoRA> resolved);
  void quantize();
  void hold_scales(const at::Tensor& scales);
  void register_parts(const std::shared_ptr<LoRALayer>& self);
  [[nodiscard]] at::Tensor sum(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) const;
  [[nodiscard]] at::Tensor plain_product(const WeightProduct& call, const at::Tensor& x) const;
  [[nodiscard]] at::Tensor dora_product(const WeightProduct& call, const at::Tensor& base, double dropout) const;

  TargetLayer layer_;  // its module owns the matrices, which own this
  const Owner* owner_ = nullptr;
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> taken_out_ = {};
  at::Tensor bits_ = {};  // of a quantized weight that is taken out
  std::shared_ptr<const ResolvedLoRA> options_;
  QuantizedForm form_;
  at::Tensor weight_, a_, b_, magnitude_, scales_;
  std::atomic<int64_t> uses_ = 0;
};

}  // namespace levin
