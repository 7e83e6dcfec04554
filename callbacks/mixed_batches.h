// MixUp and CutMix: training on mixtures of two samples of a batch and of their labels.
//
//   .callbacks = {levin::MixUp({.num_classes = 10, .alpha = 0.2})}
//   .callbacks = {levin::CutMix({.num_classes = 10, .p = 0.5})}
//
// training_step gets class probabilities as targets; cross_entropy takes them.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/data/batch.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/changes_batches.h"

namespace levin {

/// The base of callbacks that mix each sample of a training batch with another sample of the same batch. Labels become
/// probabilities of the classes, (batch, classes). Each batch has one mixing weight, drawn from Beta(alpha, alpha) with
/// the CPU's default generator, so every rank draws its own. Throws Error for inputs that are not floating point, and
/// for targets that are neither labels (batch) of type int64 nor probabilities (batch, classes).
class MixedBatches : public Callback, public ChangesBatches {
 public:
  [[nodiscard]] Batch change_batch(Batch batch) override;

  /// Returns the batch in which each sample i keeps the weight `kept` (0 to 1) and takes the rest from sample
  /// `other[i]`. `other`: (batch) int64, on the inputs' device.
  [[nodiscard]] Batch mixed(Batch batch, double kept, const at::Tensor& other) const;

 protected:
  template <class Options>
  MixedBatches(std::string name, const Options& options)
      : name_(std::move(name)),
        alpha_(options.alpha),
        p_(options.p),
        num_classes_(options.num_classes),
        input_(static_cast<size_t>(options.input)),
        target_(static_cast<size_t>(options.target)) {}

  /// Returns the mixed inputs, a new tensor; sets `kept` to the weight that was really kept.
  [[nodiscard]] virtual at::Tensor mix_inputs(const at::Tensor& inputs, const at::Tensor& others,
                                              double& kept) const = 0;

  std::string name_;

 private:
  [[nodiscard]] at::Tensor probabilities(const at::Tensor& target, at::ScalarType type) const;

  double alpha_, p_;
  int64_t num_classes_;
  size_t input_, target_;
};

/// Options of MixUp and of CutMix.
template <bool kCuts>
struct MixedBatchesOptions {
  int64_t num_classes = 0;
  double alpha = kCuts ? 1 : 0.2;
  double p = 1;
  int64_t input = 0;
  int64_t target = 1;

  template <class = void>
  static auto fields() {
    using O = MixedBatchesOptions;
    return levin::fields(
        field("num_classes", &O::num_classes, "number of classes, required").min(1),
        field("alpha", &O::alpha,
              kCuts ? "the area that an image keeps is from Beta(alpha, alpha)"
                    : "the weight of a sample is from Beta(alpha, alpha): the larger, the more is mixed")
            .above(0.0),
        field("p", &O::p, "fraction of the batches that are mixed").min(0.0).max(1.0),
        field("input", &O::input,
              kCuts ? "index of the images (batch, …, height, width) in a batch" : "index of the inputs in a batch")
            .min(0),
        field("target", &O::target, "index of the labels in a batch").min(0));
  }
};
using MixUpOptions = MixedBatchesOptions<false>;
using CutMixOptions = MixedBatchesOptions<true>;

/// MixUp (Zhang et al. 2017, https://arxiv.org/abs/1710.09412): weighted means of two samples and of their labels.
/// Inputs may have any shape (batch, …).
class MixUp final : public MixedBatches {
 public:
  using Options = MixUpOptions;
  explicit MixUp(MixUpOptions options);

 private:
  at::Tensor mix_inputs(const at::Tensor& inputs, const at::Tensor& others, double& kept) const override;
};

/// CutMix (Yun et al. 2019, https://arxiv.org/abs/1905.04899): pastes a rectangle of another image of the batch into
/// each image (batch, …, height, width), and mixes the labels by area. Each batch has one rectangle, whose center is
/// anywhere in the image; what lies outside is cut off, and the labels are weighted by the area that remains.
class CutMix final : public MixedBatches {
 public:
  using Options = CutMixOptions;
  explicit CutMix(CutMixOptions options);

 private:
  at::Tensor mix_inputs(const at::Tensor& inputs, const at::Tensor& others, double& kept) const override;
};

}  // namespace levin
