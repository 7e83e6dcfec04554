// A layer that LoRA can adapt, and what its kind means for A and B: their shapes, starting values, products. The
// layouts are PEFT's. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "levin/adapters/lora_options.h"
#include "levin/dispatch/observed_weight.h"

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

}  // namespace levin
