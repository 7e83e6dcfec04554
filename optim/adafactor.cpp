#include "levin/optim/adafactor.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "levin/core/tensors.h"

namespace levin {

// One parameter in one step. `values` and `grad` are flat: the elements from `begin` on of the full parameter, all of
// them unless it is sharded.
struct Adafactor::Work {
  at::Tensor param;
  at::Tensor values;
  at::Tensor grad;  // undefined: the parameter is not updated here
  std::vector<int64_t> shape;
  int64_t begin = 0;
  bool is_sharded = false;

  [[nodiscard]] bool is_factored() const { return shape.size() > 1; }
  [[nodiscard]] int64_t numel() const { return c10::multiply_integers(shape); }
  [[nodiscard]] int64_t rows() const { return shape[shape.size() - 2]; }
  [[nodiscard]] int64_t columns() const { return shape.back(); }
  [[nodiscard]] int64_t matrices() const { return c10::multiply_integers(shape.begin(), shape.end() - 2); }
  // Squares of bfloat16 are summed in float32.
  [[nodiscard]] at::ScalarType sum_type() const {
    return param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
  [[nodiscard]] std::vector<int64_t> factor_shape(size_t dim_from_end) const {
    std::vector<int64_t> sizes = shape;
    sizes[sizes.size() - dim_from_end] = 1;
    return sizes;
  }

  // The block around this rank's elements: full rows of a single matrix, or full matrices if there are several, so that
  // the block has three dimensions.
  [[nodiscard]] bool has_many() const { return matrices() > 1; }
  [[nodiscard]] int64_t unit() const { return has_many() ? rows() * columns() : columns(); }
  [[nodiscard]] int64_t first() const { return begin / unit(); }
  [[nodiscard]] int64_t count() const { return (begin + values.numel() + unit() - 1) / unit() - first(); }
  [[nodiscard]] int64_t offset() const { return begin - first() * unit(); }  // of this rank's elements in the block

  // The gradient in its block; elements of other ranks are 0.
  [[nodiscard]] at::Tensor gradient_block() const {
    at::Tensor block = at::zeros({count() * unit()}, grad.options().dtype(sum_type()));
    block.narrow(0, offset(), grad.numel()).copy_(grad);
    return block.view({has_many() ? count() : 1, has_many() ? rows() : count(), columns()});
  }
  // The entries of a factor that belong to the block. `factor`: (matrices, rows or 1, columns or 1).
  [[nodiscard]] at::Tensor in_block(const at::Tensor& factor) const {
    if (has_many()) return factor.narrow(0, first(), count());
    return factor.size(1) > 1 ? factor.narrow(1, first(), count()) : factor;
  }
};

namespace {

double machine_epsilon(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return std::numeric_limits<double>::epsilon();
    case at::kHalf: return 0x1p-10;
    case at::kBFloat16: return 0x1p-7;
    default: return std::numeric_limits<float>::epsilon();
  }
}

at::Tensor root_of_mean(const at::Tensor& sum, int64_t count) {
  return sum.div(static_cast<double>(count)).sqrt_();
}

}  // namespace

Adafactor::Adafactor(AdafactorOptions options)
    : Optimizer({.lr = options.lr, .weight_decay = options.weight_decay}),
      options_(checked(options, "AdafactorOptions")) {}

StateLayout Adafactor::layout(const std::string& name) const {
  return name == "row_var" || name == "col_var" ? StateLayout::own_shape : Optimizer::layout(name);
}

Adafactor::Work Adafactor::work_on(const at::Tensor& param) const {
  Work work{.param = param, .values = param.reshape({-1}), .grad = {}, .shape = param.sizes().vec()};
  const auto range = shards_ != nullptr ? shards_->range_of(param) : std::nullopt;
  if (range) {
    work.shape = range->shape;
    work.begin = range->begin;
    work.is_sharded = true;
  }
  const at::Tensor& grad = param.grad();
  if (!grad.defined() || param.numel() == 0) return work;
  if (grad.layout() != at::kStrided) {
    throw Error("Adafactor: a tensor of shape " + shape_text(work.shape) +
                " has a sparse gradient. Make the layer with sparse(false).");
  }
  work.grad = options_.maximize ? grad.neg().reshape({-1}) : grad.reshape({-1});
  return work;
}

// Sums over this rank's elements: squares of the parameter, then of the gradient's rows and columns; 0 where other
// ranks have the elements.
at::Tensor Adafactor::squares(const Work& work) const {
  const int64_t rows = work.is_factored() ? work.matrices() * work.rows() : 0;
  const int64_t columns = work.is_factored() ? work.matrices() * work.columns() : 0;
  at::Tensor sums = at::zeros({1 + rows + columns}, work.values.options().dtype(work.sum_type()));
  if (!work.grad.defined()) return sums;
  sums[0].copy_(work.values.to(work.sum_type()).square().sum());
  if (!work.is_factored()) return sums;
  const at::Tensor block = work.gradient_block().square_();
  const at::Tensor by_row = sums.narrow(0, 1, rows).view({work.matrices(), work.rows()});
  const at::Tensor by_column = sums.narrow(0, 1 + rows, columns).view({work.matrices(), 1, work.columns()});
  work.in_block(by_row.unsqueeze(2)).copy_(block.sum(-1, /*keepdim=*/true));
  work.in_block(by_column).copy_(block.sum(-2, /*keepdim=*/true));
  return sums;
}

// Returns the sums over all ranks, in one reduction. Sums of parameters that are not sharded do not change.
std::vector<at::Tensor> Adafactor::summed(const std::vector<Work>& works, std::vector<at::Tensor> sums) const {
  std::vector<at::Tensor> sharded;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < works.size(); ++i) {
    if (!works[i].is_sharded) continue;
    sharded.push_back(sums[i]);
    sizes.push_back(sums[i].numel());
  }
  if (sharded.empty()) return sums;
  const std::vector<at::Tensor> all = shards_->sum_over_ranks(at::cat(sharded)).split_with_sizes(sizes);
  for (size_t i = 0, next = 0; i < works.size(); ++i) {
    if (works[i].is_sharded) sums[i] = all[next++];
  }
  return sums;
}

// Algorithm 6 of the paper, with PyTorch's use of the epsilons. Updates the state; returns the direction of this rank's
// elements, before it is clipped and scaled.
at::Tensor Adafactor::update_of(const Work& work, Slot& slot, const at::Tensor& sums) const {
  const at::TensorOptions options = work.param.options();
  const double weight = std::pow(static_cast<double>(++slot.step), options_.beta2_decay);
  const double eps = options_.eps[0].value_or(machine_epsilon(work.param.scalar_type()));
  if (!work.is_factored()) {
    if (!slot.variance.defined()) slot.variance = at::zeros(work.param.sizes(), options);
    slot.variance.view({-1}).lerp_(work.grad.square(), weight);
    return slot.variance.view({-1}).clamp_min(eps * eps).rsqrt_().mul_(work.grad);
  }
  const int64_t rows = work.matrices() * work.rows();
  if (!slot.row_var.defined()) {
    slot.row_var = at::zeros(work.factor_shape(1), options);
    slot.col_var = at::zeros(work.factor_shape(2), options);
  }
  const auto row_mean = sums.narrow(0, 1, rows).div(static_cast<double>(work.columns())).to(options);
  const auto col_mean =
      sums.narrow(0, 1 + rows, slot.col_var.numel()).div(static_cast<double>(work.rows())).to(options);
  slot.row_var.lerp_(row_mean.view(slot.row_var.sizes()), weight);
  slot.col_var.lerp_(col_mean.view(slot.col_var.sizes()), weight);
  const at::Tensor row = slot.row_var.view({work.matrices(), work.rows(), 1});
  const at::Tensor column = slot.col_var.view({work.matrices(), 1, work.columns()});
  const at::Tensor mean = row.mean(-2, /*keepdim=*/true).clamp_min_(eps);
  at::Tensor estimate = work.in_block(row).mul(work.in_block(column)).div_(work.in_block(mean));
  estimate = estimate.view({-1}).narrow(0, work.offset(), work.grad.numel());
  return estimate.clamp_min(eps * eps).rsqrt_().mul_(work.grad);
}

at::Tensor Adafactor::do_step(const Closure* closure) {
  at::Tensor loss = closure != nullptr ? (*closure)() : at::Tensor();
  const at::NoGradGuard no_grad;
  std::vector<Work> works;
  std::vector<at::Tensor> sums, updates, update_sums;
  for (const at::Tensor& param : parameters()) {
    works.push_back(work_on(param));
    sums.push_back(squares(works.back()));
  }
  sums = summed(works, std::move(sums));
  for (size_t i = 0; i < works.size(); ++i) {
    const bool is_updated = works[i].grad.defined();
    updates.push_back(is_updated ? update_of(works[i], slots_[i], sums[i]) : at::Tensor());
    update_sums.push_back(is_updated ? updates[i].to(works[i].sum_type()).square().sum().view({1})
                                     : at::zeros({1}, works[i].values.options().dtype(works[i].sum_type())));
  }
  update_sums = summed(works, std::move(update_sums));
  size_t i = 0;
  for (const Group& group : groups_) {
    for (size_t k = 0; k < group.params.size(); ++k, ++i) {
      if (!updates[i].defined()) continue;
      const Work& work = works[i];
      const double largest_step = std::min(group.lr, 1 / std::sqrt(static_cast<double>(slots_[i].step)));
      const at::Tensor step = root_of_mean(sums[i][0], work.numel()).clamp_min_(*options_.eps[1]).mul_(largest_step);
      const at::Tensor excess = root_of_mean(update_sums[i][0], work.numel()).div_(options_.d).clamp_min_(1.0);
      if (group.weight_decay != 0) work.param.mul_(1 - group.lr * group.weight_decay);
      work.param.sub_(updates[i].mul_(step.div(excess)).view(work.param.sizes()));
    }
  }
  return loss;
}

State Adafactor::state_dict() const {
  State state;
  save_groups(state);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const std::string prefix = std::to_string(i) + ".";
    if (slot.step > 0) state.tensors[prefix + "step"] = at::scalar_tensor(static_cast<double>(slot.step), at::kFloat);
    if (slot.row_var.defined()) state.tensors[prefix + "row_var"] = slot.row_var;
    if (slot.col_var.defined()) state.tensors[prefix + "col_var"] = slot.col_var;
    if (slot.variance.defined()) state.tensors[prefix + "variance"] = slot.variance;
  }
  return state;
}

void Adafactor::load_state_dict(const State& saved) {
  std::vector<Group> groups = saved_groups(saved);
  check_state_keys(saved, {"step", "row_var", "col_var", "variance"});
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> params = parameters();
  std::vector<Slot> slots(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string prefix = std::to_string(i) + ".";
    const auto next = saved.tensors.lower_bound(prefix);
    if (next == saved.tensors.end() || !next->first.starts_with(prefix)) continue;  // never updated
    const auto load = [&](const std::string& name, at::IntArrayRef sizes) {
      return at::empty(sizes, params[i].options()).copy_(saved_tensor(saved, prefix + name, sizes));
    };
    const Work work = work_on(params[i]);
    slots[i].step = saved_tensor(saved, prefix + "step").item().toLong();
    if (work.is_factored()) {
      slots[i].row_var = load("row_var", work.factor_shape(1));
      slots[i].col_var = load("col_var", work.factor_shape(2));
    } else {
      slots[i].variance = load("variance", params[i].sizes());
    }
  }
  slots_ = std::move(slots);
  groups_ = std::move(groups);
}

ConfigNode Adafactor::written_options() const {
  return write_options(options_);
}

}  // namespace levin
