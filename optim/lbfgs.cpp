#include "levin/optim/lbfgs.h"

#include <torch/optim/lbfgs.h>

#include "levin/optim/torch_optimizer.h"

namespace levin {

LBFGS::LBFGS(LBFGSOptions options)
    : Optimizer({.lr = options.lr, .has_weight_decay = false}), options_(checked(options, "LBFGSOptions")) {}

void LBFGS::group_added() {
  if (groups_.size() > 1) throw Error("LBFGS: takes one parameter group only. Put all tensors into one.");
  torch::optim::LBFGSOptions options(groups_[0].lr);
  options.max_iter(options_.max_iter)
      .max_eval(options_.max_eval)
      .tolerance_grad(options_.tolerance_grad)
      .tolerance_change(options_.tolerance_change)
      .history_size(options_.history_size);
  if (options_.line_search_fn) options.line_search_fn(enum_name(*options_.line_search_fn));
  inner_ = std::make_shared<TorchOptimizer>(std::make_shared<torch::optim::LBFGS>(groups_[0].params, options));
}

at::Tensor LBFGS::do_step(const Closure* closure) {
  if (inner_ == nullptr) return (*closure)();
  inner_->param_groups()[0].lr = groups_[0].lr;
  return inner_->step(*closure);
}

StateLayout LBFGS::layout(const std::string& name) const {
  return inner_ != nullptr ? inner_->layout(name) : Optimizer::layout(name);
}

State LBFGS::state_dict() const {
  State state;
  if (inner_ != nullptr) state.tensors = inner_->state_dict().tensors;
  save_groups(state);
  return state;
}

void LBFGS::load_state_dict(const State& saved) {
  std::vector<Group> groups = saved_groups(saved);
  if (inner_ != nullptr) {
    State inner = inner_->state_dict();
    inner.tensors = saved.tensors;
    inner_->load_state_dict(inner);
  }
  groups_ = std::move(groups);
}

ConfigNode LBFGS::written_options() const {
  return write_options(options_);
}

}  // namespace levin
