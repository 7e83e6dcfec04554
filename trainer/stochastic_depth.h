// Stochastic depth (Huang et al. 2016, https://arxiv.org/abs/1603.09382): in training a residual branch is left out at
// random, as torchvision.ops.StochasticDepth does.
//
//   levin::StochasticDepth drop_{register_module("drop", levin::StochasticDepth(0.1))};
//   torch::Tensor forward(const torch::Tensor& x) { return x + drop_->forward(body_->forward(x)); }
#pragma once

#include "levin/core/options/fields.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

/// What is dropped together: the branch of the whole batch, or the branch of each sample (row) independently.
enum class DropMode { batch, row };
template <>
struct EnumNames<DropMode> {
  static constexpr EnumName<DropMode> names[] = {{"batch", DropMode::batch}, {"row", DropMode::row}};
};

/// Returns `branch`, (batch, …), with parts set to 0 with probability `p`, drawn from the default generator of its
/// device; the rest is divided by 1 - p, so that the mean stays the same. Returns it unchanged unless `training`.
/// Throws Error unless p is in [0, 1].
[[nodiscard]] at::Tensor stochastic_depth(const at::Tensor& branch, double p, DropMode mode, bool training = true);

/// A layer that drops its input, a residual branch (batch, …), at random in training mode and returns it unchanged in
/// evaluation mode. Throws Error unless p is in [0, 1].
class StochasticDepthImpl : public torch::nn::Module {
 public:
  explicit StochasticDepthImpl(double p, DropMode mode = DropMode::row);
  [[nodiscard]] at::Tensor forward(const at::Tensor& branch) const;
  void pretty_print(std::ostream& stream) const override;

 private:
  double p_;
  DropMode mode_;
};
TORCH_MODULE(StochasticDepth);

/// Returns the probability of a drop for block `block` (from 0) of `blocks`: it grows linearly to `last`, the
/// probability of the last block (section 3 of the paper).
[[nodiscard]] inline double depth_probability(int64_t block, int64_t blocks, double last) {
  return last * static_cast<double>(block + 1) / static_cast<double>(blocks);
}

}  // namespace levin
