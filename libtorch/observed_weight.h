// Sees what a layer computes with its weight, wherever that is computed: LibTorch's modules have no forward hooks, and
// users call a layer's forward themselves. The weight, in every handle of it, carries a dispatch key above autograd and
// autocast, so an operator that gets it arrives here first. Other tensors cost nothing, and there is no state of
// threads: replicas, recomputation and backward see it as the first forward pass does. Uses LibTorch's dispatcher, with
// a key of borrowed_keys.h, and the dispatch keys and backend metadata of a TensorImpl. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "levin/core/weight_use.h"

namespace levin {

/// A product of an observed weight, as a layer requests it: input * weight^T + bias for any operator; rows of an
/// embedding; a convolution.
struct WeightProduct {
  at::Tensor input;                       // (…, in); indices of any shape; (batch, in, size …) or (in, size …)
  at::Tensor bias;                        // (out), or undefined
  at::Tensor weight;                      // as the module holds it, without the key
  std::function<at::Tensor()> unchanged;  // computes it as if nobody observed the weight
  /// Of an embedding or a convolution: the same operator of other tensors, without a bias and in one group, with its
  /// padding_idx, stride, padding, ….
  std::function<at::Tensor(const at::Tensor& input, const at::Tensor& weight)> with = {};
  int64_t groups = 1;  // of a convolution
};

class WeightObserver {
 public:
  virtual ~WeightObserver() = default;

  /// Computes the product instead of the operator, under its autograd and autocast, in the operator's shape.
  virtual at::Tensor product(const WeightProduct& call) = 0;
  /// Which products it is called for; never `other`.
  [[nodiscard]] virtual WeightUse use() const { return WeightUse::linear; }
  /// Whether a linear layer's module holds the weight as (in, out) instead of torch::nn::Linear's (out, in).
  [[nodiscard]] virtual bool is_in_out() const = 0;
  /// Called before any other operator that gets the weight; throws to refuse it.
  virtual void check_other_use(const std::string& /*operator_name*/) const {}
  /// Returns whether Module::to(dtype) leaves the weight's type unchanged.
  [[nodiscard]] virtual bool keeps_dtype() const { return false; }
};

/// Observes `weight`, a module's parameter, from now on, until forget_weight or the end of `observer`. It is a new
/// value of the same tensor (set_data), which shares its memory; a later set_data with a tensor without the key ends
/// it too: call this again then. Copies that to() makes keep the key. Any thread.
void observe_weight(const at::Tensor& weight, const std::shared_ptr<WeightObserver>& observer);
/// The same without the key again.
void forget_weight(const at::Tensor& weight);
/// Leaves the key where it is, without effect: for destructors.
void end_observation(const at::Tensor& weight);
/// Whether it has the key.
[[nodiscard]] bool is_observed(const at::Tensor& tensor);

/// Another tensor in the same memory with the key, or without; neither has a graph.
[[nodiscard]] at::Tensor with_observed_key(const at::Tensor& tensor);
[[nodiscard]] at::Tensor without_observed_key(const at::Tensor& tensor);
/// Returns `value`, with the key if `weight` has it: for a strategy that gives a parameter a different value.
[[nodiscard]] at::Tensor observed_like(const at::Tensor& weight, const at::Tensor& value);

}  // namespace levin
