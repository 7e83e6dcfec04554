#include "levin/optim/lookahead.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace levin {

namespace {

std::string slow_key(size_t index) {
  return std::to_string(index) + ".slow";
}

}  // namespace

Lookahead::Lookahead(LookaheadOptions options)
    : WrappingOptimizer(make_inner(options.optimizer, "Lookahead"), defaults_of(options.optimizer, "Lookahead"),
                        "Lookahead"),
      options_(checked(std::move(options), "LookaheadOptions")) {}

Lookahead::Lookahead(std::shared_ptr<Optimizer> inner, LookaheadOptions options)
    : WrappingOptimizer(inner, defaults_of(*inner), "Lookahead") {
  options.optimizer = spec_of(*inner);
  options_ = checked(std::move(options), "LookaheadOptions");
}

// Algorithm 1 of the paper.
at::Tensor Lookahead::do_step(const Closure* closure) {
  at::Tensor loss = closure != nullptr ? (*closure)() : at::Tensor();
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> fast = parameters();
  for (size_t i = slow_.size(); i < fast.size(); ++i) slow_.push_back(fast[i].detach().clone());
  step_inner();
  if (++steps_ < options_.k) return loss;
  steps_ = 0;
  at::_foreach_lerp_(slow_, fast, options_.alpha);
  at::_foreach_copy_(fast, slow_);
  return loss;
}

State Lookahead::own_state() const {
  State state;
  state.set("steps", steps_);
  for (size_t i = 0; i < slow_.size(); ++i) state.tensors[slow_key(i)] = slow_[i];
  return state;
}

void Lookahead::load_own_state(State& saved) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> fast = parameters();
  std::vector<at::Tensor> slow;
  for (size_t i = 0; i < fast.size(); ++i) {
    const auto found = saved.tensors.find(slow_key(i));
    if (found == saved.tensors.end() && fast[i].numel() > 0) break;
    if (found == saved.tensors.end()) {  // the parameter is on other ranks
      slow.push_back(fast[i].detach().clone());
      continue;
    }
    slow.push_back(at::empty_like(fast[i]).copy_(saved_tensor(saved, slow_key(i), fast[i].sizes())));
    saved.tensors.erase(found);
  }
  const auto steps = saved.get<int64_t>("steps");
  slow_ = std::move(slow);
  steps_ = steps;
}

ConfigNode Lookahead::written_options() const {
  return write_options(options_);
}

}  // namespace levin
