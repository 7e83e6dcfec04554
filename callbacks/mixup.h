// MixUp (Zhang et al. 2017, https://arxiv.org/abs/1710.09412): trains on weighted means of two samples and their
// labels.
//
//   .callbacks = {levin::MixUp({.num_classes = 10, .alpha = 0.2})}
//
// training_step gets probabilities of the classes as targets; cross_entropy takes them.
#pragma once

#include "levin/callbacks/mixed_batches.h"
#include "levin/core/fields.h"

namespace levin {

struct MixUpOptions {
  int64_t num_classes = 0;
  double alpha = 0.2;
  double p = 1;
  int64_t input = 0;
  int64_t target = 1;

  template <class = void>
  static auto fields() {
    using O = MixUpOptions;
    return levin::fields(
        field("num_classes", &O::num_classes, "classes of the labels, required").min(1),
        field("alpha", &O::alpha, "the weight of a sample is from Beta(alpha, alpha): the larger, the more is mixed")
            .above(0.0),
        field("p", &O::p, "share of the batches that are mixed").min(0.0).max(1.0),
        field("input", &O::input, "place of the inputs in a batch").min(0),
        field("target", &O::target, "place of the labels in a batch").min(0));
  }
};

class MixUp final : public MixedBatches {
 public:
  using Options = MixUpOptions;
  explicit MixUp(MixUpOptions options);

 private:
  at::Tensor mix_inputs(const at::Tensor& inputs, const at::Tensor& others, double& kept) const override;
};

}  // namespace levin
