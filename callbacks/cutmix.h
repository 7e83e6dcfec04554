// CutMix (Yun et al. 2019, https://arxiv.org/abs/1905.04899): pastes a rectangle of another image of the batch into
// each image, and mixes the labels by area.
//
//   .callbacks = {levin::CutMix({.num_classes = 10, .p = 0.5})}
//
// training_step gets probabilities of the classes as targets; cross_entropy takes them.
#pragma once

#include "levin/callbacks/mixed_batches.h"
#include "levin/core/fields.h"

namespace levin {

struct CutMixOptions {
  int64_t num_classes = 0;
  double alpha = 1;
  double p = 1;
  int64_t input = 0;
  int64_t target = 1;

  template <class = void>
  static auto fields() {
    using O = CutMixOptions;
    return levin::fields(
        field("num_classes", &O::num_classes, "classes of the labels, required").min(1),
        field("alpha", &O::alpha, "the area that an image keeps is from Beta(alpha, alpha)").above(0.0),
        field("p", &O::p, "share of the batches that are mixed").min(0.0).max(1.0),
        field("input", &O::input, "place of the images (batch, …, height, width) in a batch").min(0),
        field("target", &O::target, "place of the labels in a batch").min(0));
  }
};

/// One rectangle per batch, with a centre anywhere in the image; what lies outside is cut off, and the labels' weights
/// are those of the area that remains.
class CutMix final : public MixedBatches {
 public:
  using Options = CutMixOptions;
  explicit CutMix(CutMixOptions options);

 private:
  at::Tensor mix_inputs(const at::Tensor& inputs, const at::Tensor& others, double& kept) const override;
};

}  // namespace levin
