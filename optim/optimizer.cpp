#include "levin/optim/optimizer.h"

#include <ATen/ops/_foreach_zero.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "levin/core/options/error.h"
#include "levin/core/options/fields.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

// The part of a group in state_dict(); read back by name. Numbers that a schedule changed are saved unchanged.
struct SavedGroup {
  int64_t params = 0;
  double lr = 0;
  double initial_lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  bool scheduled = false;

  static auto fields() {
    return levin::fields(field("params", &SavedGroup::params, "number of tensors"),
                         field("lr", &SavedGroup::lr, "step size").any_number(),
                         field("initial_lr", &SavedGroup::initial_lr, "step size before scheduling").any_number(),
                         field("momentum", &SavedGroup::momentum, "momentum or beta1").any_number(),
                         field("weight_decay", &SavedGroup::weight_decay, "weight decay").any_number(),
                         field("scheduled", &SavedGroup::scheduled, "whether initial_lr is fixed"));
  }
};

// LibTorch's class and Levin's have the same state under the same names, so each loads the other's.
std::string kind(const std::string& name) {
  return name.starts_with("torch.") ? name.substr(6) : name;
}

// A key of state_dict(), "12.exp_avg".
struct StateKey {
  size_t param = 0;
  std::string name = {};
};

std::optional<StateKey> parse_key(const std::string& key) {
  StateKey parsed;
  const char* past = key.data() + key.size();
  const auto [end, code] = std::from_chars(key.data(), past, parsed.param);
  if (code != std::errc{} || *end != '.') return std::nullopt;  // at the end of a key stands '\0'
  parsed.name = std::string(end + 1, past);
  return parsed;
}

}  // namespace

void Optimizer::check_group(const ParamGroup& group) const {
  const std::string where = name() + ": parameter group " + std::to_string(groups_.size());
  if (group.params.empty())
    throw Error(where +
                " has no tensors. Pass the model's parameters(); layers count once the model's "
                "constructor has called register_module(\"name\", layer).");
  std::unordered_map<const c10::TensorImpl*, size_t> owners;
  for (size_t k = 0; k < groups_.size(); ++k) {
    for (const auto& param : groups_[k].params) owners.emplace(param.unsafeGetTensorImpl(), k);
  }
  for (size_t i = 0; i < group.params.size(); ++i) {
    const at::Tensor& param = group.params[i];
    const std::string what = where + ", tensor " + std::to_string(i);
    if (!param.defined()) throw Error(what + " is undefined. Register it in the model before making the optimizer.");
    if (!param.is_leaf()) {
      throw Error(what +
                  " is not a leaf: it was computed from other tensors. Pass the tensor that was registered as a " +
                  "parameter, or detach() it.");
    }
    if (param.is_complex()) {  // integers, as of a quantized weight, have no gradient and do not change
      throw Error(what + " is of type " + std::string(param.dtype().name()) +
                  ". Only real floating point tensors can be optimized.");
    }
    if (const auto owner = owners.find(param.unsafeGetTensorImpl()); owner != owners.end()) {
      throw Error(what + " is already in parameter group " + std::to_string(owner->second) +
                  ". Give each tensor to one group only, even if its layer has two names (tied weights).");
    }
  }
  auto check = [&](const char* key, const std::optional<double>& value, bool supported) {
    if (!value) return;
    if (!supported) throw Error(where + " sets " + key + ", which " + name() + " does not have. Leave it unset.");
    if (!std::isfinite(*value)) throw Error(where + "." + key + ": must be finite, got " + number_text(*value) + ".");
    if (!(*value >= 0)) throw Error(where + "." + key + ": must be >= 0, got " + number_text(*value) + ".");
  };
  check("lr", group.lr, true);
  check("weight_decay", group.weight_decay, defaults_.has_weight_decay);
  check("momentum", group.momentum, defaults_.has_momentum);
}

void Optimizer::add_param_group(ParamGroup group) {
  check_group(group);
  Group added = defaults_;
  added.params = distinct(std::move(group.params));
  added.lr = group.lr.value_or(defaults_.lr);
  added.initial_lr = added.lr;
  added.weight_decay = group.weight_decay.value_or(defaults_.weight_decay);
  added.momentum = group.momentum.value_or(defaults_.momentum);
  groups_.push_back(std::move(added));
  try {
    group_added();
  } catch (...) {
    groups_.pop_back();
    throw;
  }
}

std::vector<at::Tensor> Optimizer::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& group : groups_) all.insert(all.end(), group.params.begin(), group.params.end());
  return all;
}

void Optimizer::zero_grad(bool set_to_none) {
  std::vector<at::Tensor> to_zero;
  for (auto& group : groups_) {
    for (auto& param : group.params) {
      c10::TensorImpl* impl = param.unsafeGetTensorImpl();
      if (!impl->grad().defined()) continue;
      at::Tensor& grad = impl->mutable_grad();
      if (set_to_none) {
        grad.reset();
        continue;
      }
      if (grad.grad_fn()) grad.detach_();
      to_zero.push_back(grad);
    }
  }
  if (to_zero.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_zero_(to_zero);
}

void Optimizer::step() {
  if (needs_closure()) {
    throw Error(name() + ": evaluates the loss several times in one step. Call step(closure) with a function that " +
                "zeroes the gradients, computes the loss, calls backward() and returns the loss.");
  }
  do_step(nullptr);
}

void Optimizer::step_unless(const at::Tensor& /*found_inf*/) {
  throw Error(name() + ": its update cannot be recorded. Use SGD, Adam, AdamW or Adagrad, or record_steps: false.");
}

void Optimizer::check_layouts(const State& state) const {
  const std::vector<at::Tensor> params = parameters();
  for (const auto& [key, tensor] : state.tensors) {
    const auto parsed = parse_key(key);
    if (!parsed || parsed->param >= params.size() || !tensor.defined()) continue;
    const StateLayout found = layout(parsed->name);
    const at::IntArrayRef sizes = params[parsed->param].sizes();
    const bool fits = found == StateLayout::elementwise ? tensor.sizes() == sizes
                                                        : found == StateLayout::own_shape || tensor.dim() == 0;
    if (fits) continue;
    const bool is_scalar = found == StateLayout::scalar;
    throw Error(name() + ": its state \"" + key + "\" has shape " + shape_text(tensor.sizes()) + ", and layout(\"" +
                parsed->name + "\") is " + (is_scalar ? "scalar, which is shape ()" : "elementwise, which is ") +
                (is_scalar ? "" : shape_text(sizes) + " here, the parameter's shape (or its shard's)") +
                ". Override layout() and return " + (tensor.dim() == 0 ? "scalar" : "own_shape") + " for this name.");
  }
}

at::Tensor Optimizer::step(const Closure& closure) {
  const at::AutoGradMode with_grad(true);
  return do_step(&closure);
}

State Optimizer::default_state_dict() const {
  throw Error(name() + ": has no state_dict(), which checkpoints need. Override state_dict() and load_state_dict().");
}

void Optimizer::load_default_state_dict(const State& /*saved*/) {
  throw Error(name() +
              ": has no load_state_dict(), which checkpoints need. Override state_dict() and load_state_dict().");
}

void Optimizer::refuse_state(const std::string& why) const {
  throw CheckpointError(name() + ": " + why);
}

void Optimizer::save_groups(State& state) const {
  std::vector<SavedGroup> saved;
  for (const auto& group : groups_) {
    saved.push_back({static_cast<int64_t>(group.params.size()), group.lr, group.initial_lr, group.momentum,
                     group.weight_decay, group.scheduled});
  }
  state.set("name", name());
  state.set("groups", saved);
}

std::vector<Optimizer::Group> Optimizer::saved_groups(const State& saved) const {
  const auto saved_name = saved.get<std::string>("name");
  if (kind(saved_name) != kind(name())) {
    refuse_state("the saved state belongs to " + saved_name + ". Use the optimizer that wrote it.");
  }
  const auto list = saved.get<std::vector<SavedGroup>>("groups");
  if (list.size() != groups_.size()) {
    refuse_state("the saved state has " + count_of(list.size(), "parameter group") + ", this one has " +
                 std::to_string(groups_.size()) + ". Add the same groups before loading.");
  }
  std::vector<Group> groups = groups_;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].params != static_cast<int64_t>(groups[i].params.size())) {
      refuse_state("group " + std::to_string(i) + " has " + count_of(list[i].params, "tensor") +
                   " in the saved state and " + std::to_string(groups[i].params.size()) +
                   " here. Load a checkpoint of the same model.");
    }
    groups[i].lr = list[i].lr;
    groups[i].initial_lr = list[i].initial_lr;
    groups[i].momentum = list[i].momentum;
    groups[i].weight_decay = list[i].weight_decay;
    groups[i].scheduled = list[i].scheduled;
  }
  return groups;
}

void Optimizer::check_state_keys(const State& saved, const std::vector<std::string>& known) const {
  int64_t params = 0;
  for (const Group& group : groups_) params += static_cast<int64_t>(group.params.size());
  for (const auto& [key, tensor] : saved.tensors) {
    const auto parsed = parse_key(key);
    if (!parsed || static_cast<int64_t>(parsed->param) >= params) {
      refuse_state("the saved state holds \"" + key + "\", but the parameters here are 0 to " +
                   std::to_string(params - 1) + ". Load a checkpoint of the same model.");
    }
    if (std::find(known.begin(), known.end(), parsed->name) == known.end()) {
      refuse_state("the saved state holds \"" + key + "\", which these options do not use; known: " + join(known) +
                   ". Use the options of the run that wrote it.");
    }
  }
}

const at::Tensor& Optimizer::saved_tensor(const State& saved, const std::string& key) const {
  const auto found = saved.tensors.find(key);
  if (found == saved.tensors.end()) {
    refuse_state("the saved state has no \"" + key + "\". Use the options of the run that wrote it.");
  }
  return found->second;
}

const at::Tensor& Optimizer::saved_tensor(const State& saved, const std::string& key, at::IntArrayRef sizes) const {
  const at::Tensor& tensor = saved_tensor(saved, key);
  if (tensor.sizes() == sizes) return tensor;
  refuse_state("saved \"" + key + "\" has shape " + shape_text(tensor.sizes()) + ", expected " + shape_text(sizes) +
               ". Load a checkpoint of the same model.");
}

}  // namespace levin
