#include "levin/optim/wrapping_optimizer.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "levin/optim/averaging_optimizer.h"

namespace levin {

namespace {

template <class Group>
ParamGroup settings_of(const Group& group) {
  ParamGroup settings{.params = group.params, .lr = group.lr};
  if (group.has_weight_decay) settings.weight_decay = group.weight_decay;
  if (group.has_momentum) settings.momentum = group.momentum;
  return settings;
}

}  // namespace

WrappingOptimizer::WrappingOptimizer(std::shared_ptr<Optimizer> inner, Group defaults, const std::string& outer)
    : Optimizer(std::move(defaults)), inner_(std::move(inner)) {
  if (inner_->needs_closure()) {
    throw ConfigError(outer + ".optimizer: " + inner_->name() +
                      " evaluates the loss several times in one step, which cannot be wrapped. Use it on its own.");
  }
  if (dynamic_cast<const AveragingOptimizer*>(inner_.get()) != nullptr) {
    throw ConfigError(outer + ".optimizer: " + inner_->name() +
                      " keeps an average of the weights, which cannot be wrapped. Use it on its own.");
  }
  groups_ = inner_->param_groups();
}

std::shared_ptr<Optimizer> WrappingOptimizer::make_inner(const ClassSpec& spec, const std::string& outer) {
  if (spec.empty()) {
    throw ConfigError(outer + ".optimizer: is not set. Name the optimizer to wrap: {class_path: SGD, init_args: {…}}.");
  }
  return Registry<Optimizer>::instance().make(spec, outer + ".optimizer");
}

// Read from a group of a second one.
Optimizer::Group WrappingOptimizer::defaults_of(const ClassSpec& spec, const std::string& outer) {
  const auto probe = make_inner(spec, outer);
  probe->add_param_group({.params = {at::zeros({1})}});
  return defaults_of(*probe);
}

Optimizer::Group WrappingOptimizer::defaults_of(const Optimizer& inner) {
  if (inner.param_groups().empty()) {
    throw Error(inner.name() + ": has no parameters yet. Add them before wrapping it.");
  }
  Group defaults = inner.param_groups().front();
  defaults.params.clear();
  return defaults;
}

ClassSpec WrappingOptimizer::spec_of(const Optimizer& inner) {
  return {inner.name(), inner.written_options(), {}};
}

bool WrappingOptimizer::updates_whole_tensors() const {
  return inner_->updates_whole_tensors();
}

void WrappingOptimizer::take_names(const NamedTensors& parameters) {
  if (auto* by_name = dynamic_cast<NamesParameters*>(inner_.get())) by_name->take_names(parameters);
}

void WrappingOptimizer::group_added() {
  inner_->add_param_group(settings_of(groups_.back()));
}

void WrappingOptimizer::step_inner() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = inner_->param_groups()[i];
    group.lr = groups_[i].lr;
    group.momentum = groups_[i].momentum;
    group.weight_decay = groups_[i].weight_decay;
  }
  inner_->step();
}

void WrappingOptimizer::use_shards(std::shared_ptr<const ParameterShards> shards) {
  inner_->use_shards(std::move(shards));
}

StateLayout WrappingOptimizer::layout(const std::string& name) const {
  return inner_->layout(name);
}

State WrappingOptimizer::default_state_dict() const {
  State state = own_state();
  for (const auto& [key, tensor] : inner_->state_dict().tensors) state.tensors[key] = tensor;
  save_groups(state);
  state.set("inner", inner_->name());
  return state;
}

void WrappingOptimizer::load_default_state_dict(const State& saved) {
  std::vector<Group> groups = saved_groups(saved);
  const auto inner_name = saved.get<std::string>("inner");
  if (inner_name != inner_->name()) {
    refuse_state("the saved state is of one around " + inner_name + ", and this one is around " + inner_->name() +
                 ". Use the optimizer that wrote it.");
  }
  const State before = own_state();
  State rest = saved;
  load_own_state(rest);
  try {
    State inner = inner_->state_dict();  // its settings are replaced at the next step
    inner.tensors = std::move(rest.tensors);
    inner_->load_state_dict(inner);
  } catch (...) {
    State own = before;
    load_own_state(own);
    throw;
  }
  groups_ = std::move(groups);
}

}  // namespace levin
