#include "levin/optim/torch_optimizer.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <deque>
#include <set>
#include <type_traits>
#include <utility>

#include "levin/core/tensors.h"

namespace levin {

namespace {

namespace optim = torch::optim;

// ---- settings: calls `use` with the options as their own class; false if the class is not LibTorch's.
template <class Options, class Use>
bool with_known(Options& options, Use use) {
  auto try_one = [&]<class T>(std::type_identity<T>) {
    using Known = std::conditional_t<std::is_const_v<Options>, const T, T>;
    auto* known = dynamic_cast<Known*>(&options);
    if (known != nullptr) use(*known);
    return known != nullptr;
  };
  return try_one(std::type_identity<optim::SGDOptions>()) || try_one(std::type_identity<optim::AdamOptions>()) ||
         try_one(std::type_identity<optim::AdamWOptions>()) || try_one(std::type_identity<optim::RMSpropOptions>()) ||
         try_one(std::type_identity<optim::AdagradOptions>()) || try_one(std::type_identity<optim::LBFGSOptions>());
}

Optimizer::Group read_settings(const optim::OptimizerOptions& options) {
  Optimizer::Group group;
  group.has_weight_decay = false;
  const bool known = with_known(options, [&](const auto& own) {
    group.lr = own.lr();
    if constexpr (requires { own.momentum(); }) group.momentum = own.momentum();
    if constexpr (requires { own.betas(); }) group.momentum = std::get<0>(own.betas());
    group.has_momentum = requires {
      own.momentum();
    }
    || requires {
      own.betas();
    };
    if constexpr (requires { own.weight_decay(); }) {
      group.weight_decay = own.weight_decay();
      group.has_weight_decay = true;
    }
  });
  if (!known) group.lr = options.get_lr();
  group.initial_lr = group.lr;
  return group;
}

void write_settings(const Optimizer::Group& group, optim::OptimizerOptions& options) {
  const bool known = with_known(options, [&](auto& own) {
    own.lr(group.lr);
    if constexpr (requires { own.momentum(); }) own.momentum(group.momentum);
    if constexpr (requires { own.betas(); }) own.betas({group.momentum, std::get<1>(own.betas())});
    if constexpr (requires { own.weight_decay(); }) own.weight_decay(group.weight_decay);
  });
  if (!known) options.set_lr(group.lr);
}

// All options of LibTorch's own classes, under their names.
template <class Options>
ConfigNode write_known(const Options& own) {
  ConfigNode node = ConfigNode::map();
#define LEVIN_OPTION(name)                                                                   \
  if constexpr (requires { own.name(); }) {                                                  \
    using Value = std::decay_t<decltype(own.name())>;                                        \
    if constexpr (HasValueType<Value>) node.set(#name, ValueType<Value>::write(own.name())); \
  }
  LEVIN_OPTION(lr)
  LEVIN_OPTION(momentum)
  LEVIN_OPTION(dampening)
  LEVIN_OPTION(weight_decay)
  LEVIN_OPTION(nesterov)
  LEVIN_OPTION(eps)
  LEVIN_OPTION(amsgrad)
  LEVIN_OPTION(alpha)
  LEVIN_OPTION(centered)
  LEVIN_OPTION(lr_decay)
  LEVIN_OPTION(initial_accumulator_value)
  LEVIN_OPTION(max_iter)
  LEVIN_OPTION(max_eval)
  LEVIN_OPTION(tolerance_grad)
  LEVIN_OPTION(tolerance_change)
  LEVIN_OPTION(history_size)
  LEVIN_OPTION(line_search_fn)
#undef LEVIN_OPTION
  if constexpr (requires { own.betas(); }) {
    node.set("betas", ValueType<std::vector<double>>::write({std::get<0>(own.betas()), std::get<1>(own.betas())}));
  }
  return node;
}

// ---- state: `visit(name, member)` for every member, under PyTorch's names.
template <class Visit>
void each_member(optim::SGDParamState& state, Visit visit) {
  visit("momentum_buffer", state.momentum_buffer());
}
template <class State, class Visit>
requires std::is_same_v<State, optim::AdamParamState> || std::is_same_v<State, optim::AdamWParamState>
void each_member(State& state, Visit visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <class Visit>
void each_member(optim::RMSpropParamState& state, Visit visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}
template <class Visit>
void each_member(optim::AdagradParamState& state, Visit visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}
template <class Visit>
void each_member(optim::LBFGSParamState& state, Visit visit) {
  visit("func_evals", state.func_evals());
  visit("n_iter", state.n_iter());
  visit("t", state.t());
  visit("prev_loss", state.prev_loss());
  visit("d", state.d());
  visit("H_diag", state.H_diag());
  visit("prev_flat_grad", state.prev_flat_grad());
  visit("old_dirs", state.old_dirs());
  visit("old_stps", state.old_stps());
  visit("ro", state.ro());
}

// LibTorch keeps "step" as an integer; PyTorch's files hold a float32 scalar.
struct Writer {
  State& state;
  std::string prefix;
  void operator()(const char* name, int64_t number) const { put(name, at::scalar_tensor(number, at::kLong)); }
  void operator()(const char* name, double number) const { put(name, at::scalar_tensor(number, at::kDouble)); }
  void operator()(const char* name, const at::Tensor& tensor) const { put(name, tensor); }
  void operator()(const char* name, const std::deque<at::Tensor>& list) const {
    for (size_t i = 0; i < list.size(); ++i) put(std::string(name) + "." + std::to_string(i), list[i]);
  }
  void put(const std::string& name, const at::Tensor& tensor) const {
    if (tensor.defined()) state.tensors[prefix + name] = tensor;
  }
};

struct Reader {
  const State& state;
  std::string prefix;
  const at::Tensor& like;  // the parameter: its device
  std::set<std::string>& used;

  const at::Tensor* find(const std::string& name) const {
    const auto found = state.tensors.find(prefix + name);
    if (found == state.tensors.end()) return nullptr;
    used.insert(found->first);
    return &found->second;
  }
  void operator()(const char* name, int64_t& number) const {
    if (const auto* saved = find(name)) number = saved->item().toLong();
  }
  void operator()(const char* name, double& number) const {
    if (const auto* saved = find(name)) number = saved->item().toDouble();
  }
  void operator()(const char* name, at::Tensor& tensor) const {
    if (const auto* saved = find(name)) tensor = saved->to(like.device(), saved->scalar_type(), false, true);
  }
  void operator()(const char* name, std::deque<at::Tensor>& list) const {
    list.clear();
    for (at::Tensor item; find(std::string(name) + "." + std::to_string(list.size())) != nullptr;) {
      (*this)((std::string(name) + "." + std::to_string(list.size())).c_str(), item);
      list.push_back(item);
    }
  }
};

template <class Use>
bool with_known_state(optim::OptimizerParamState& state, Use use) {
  auto try_one = [&](auto* known) {
    if (known != nullptr) use(*known);
    return known != nullptr;
  };
  return try_one(dynamic_cast<optim::SGDParamState*>(&state)) ||
         try_one(dynamic_cast<optim::AdamParamState*>(&state)) ||
         try_one(dynamic_cast<optim::AdamWParamState*>(&state)) ||
         try_one(dynamic_cast<optim::RMSpropParamState*>(&state)) ||
         try_one(dynamic_cast<optim::AdagradParamState*>(&state)) ||
         try_one(dynamic_cast<optim::LBFGSParamState*>(&state));
}

std::unique_ptr<optim::OptimizerParamState> fresh_state(const optim::Optimizer& inner) {
  if (dynamic_cast<const optim::SGD*>(&inner) != nullptr) return std::make_unique<optim::SGDParamState>();
  if (dynamic_cast<const optim::Adam*>(&inner) != nullptr) return std::make_unique<optim::AdamParamState>();
  if (dynamic_cast<const optim::AdamW*>(&inner) != nullptr) return std::make_unique<optim::AdamWParamState>();
  if (dynamic_cast<const optim::RMSprop*>(&inner) != nullptr) return std::make_unique<optim::RMSpropParamState>();
  if (dynamic_cast<const optim::Adagrad*>(&inner) != nullptr) return std::make_unique<optim::AdagradParamState>();
  if (dynamic_cast<const optim::LBFGS*>(&inner) != nullptr) return std::make_unique<optim::LBFGSParamState>();
  return nullptr;
}

// LBFGS keeps flat vectors over all parameters; the others a tensor of the parameter's shape.
bool fits(const at::Tensor& saved, const at::Tensor& param, int64_t flat_size) {
  if (saved.dim() == 0) return true;
  return flat_size > 0 ? saved.dim() == 1 && saved.numel() == flat_size : saved.sizes() == param.sizes();
}

}  // namespace

TorchOptimizer::TorchOptimizer(std::shared_ptr<optim::Optimizer> inner)
    : Optimizer(read_settings(inner->defaults())), inner_(std::move(inner)) {
  for (auto& group : inner_->param_groups()) {
    group.params() = distinct(std::move(group.params()));  // LibTorch would update a tensor that is listed twice twice
    groups_.push_back(read_settings(group.has_options() ? group.options() : inner_->defaults()));
    groups_.back().params = group.params();
    if (std::isfinite(groups_.back().lr)) continue;
    throw Error(name() + ": parameter group " + std::to_string(groups_.size() - 1) + ".lr: must be finite, got " +
                number_text(groups_.back().lr) + ".");
  }
  const auto all = parameters();
  if (distinct(all).size() == all.size()) return;
  throw Error(name() +
              ": two parameter groups have a tensor in common, which LibTorch would update twice. Give each "
              "tensor to one group only, even if its layer has two names (tied weights).");
}

std::string TorchOptimizer::name() const {
  const optim::Optimizer* inner = inner_.get();
  if (dynamic_cast<const optim::SGD*>(inner) != nullptr) return "torch.SGD";
  if (dynamic_cast<const optim::Adam*>(inner) != nullptr) return "torch.Adam";
  if (dynamic_cast<const optim::AdamW*>(inner) != nullptr) return "torch.AdamW";
  if (dynamic_cast<const optim::RMSprop*>(inner) != nullptr) return "torch.RMSprop";
  if (dynamic_cast<const optim::Adagrad*>(inner) != nullptr) return "torch.Adagrad";
  if (dynamic_cast<const optim::LBFGS*>(inner) != nullptr) return "torch.LBFGS";
  return "torch.Optimizer";
}

ConfigNode TorchOptimizer::written_options() const {
  ConfigNode node;
  with_known(std::as_const(*inner_).defaults(), [&](const auto& own) { node = write_known(own); });
  return node;
}

bool TorchOptimizer::needs_closure() const {
  return dynamic_cast<const optim::LBFGS*>(inner_.get()) != nullptr;
}

void TorchOptimizer::group_added() {
  auto options = inner_->defaults().clone();
  write_settings(groups_.back(), *options);
  inner_->add_param_group(optim::OptimizerParamGroup(groups_.back().params, std::move(options)));
}

void TorchOptimizer::send_settings() {
  for (size_t i = 0; i < groups_.size(); ++i) write_settings(groups_[i], inner_->param_groups()[i].options());
}

namespace {

// Of a step whose closure throws: what the inner optimizer knew before. LBFGS keeps directions and gradients of the
// points that it has left, and overwrites one of them.
class StateBefore {
 public:
  explicit StateBefore(optim::Optimizer& inner) : inner_(inner) {
    for (const auto& [parameter, state] : inner.state()) {
      auto own = state->clone();
      auto* lbfgs = dynamic_cast<optim::LBFGSParamState*>(own.get());
      if (lbfgs != nullptr && lbfgs->prev_flat_grad().defined()) lbfgs->prev_flat_grad(lbfgs->prev_flat_grad().clone());
      states_[parameter] = std::move(own);
    }
  }
  void restore() { inner_.state() = std::move(states_); }

 private:
  optim::Optimizer& inner_;
  std::decay_t<decltype(std::declval<optim::Optimizer&>().state())> states_;
};

}  // namespace

at::Tensor TorchOptimizer::do_step(const Closure* closure) {
  send_settings();
  if (closure == nullptr) return inner_->step();
  StateBefore before(*inner_);
  try {
    return inner_->step(*closure);
  } catch (...) {
    before.restore();
    throw;
  }
}

// LBFGS keeps vectors over all parameters.
StateLayout TorchOptimizer::layout(const std::string& name) const {
  return needs_closure() ? StateLayout::own_shape : Optimizer::layout(name);
}

State TorchOptimizer::state_dict() const {
  State state;
  save_groups(state);
  const auto params = parameters();
  for (size_t i = 0; i < params.size(); ++i) {
    const auto found = inner_->state().find(params[i].unsafeGetTensorImpl());
    if (found == inner_->state().end()) continue;
    const Writer write{state, std::to_string(i) + "."};
    if (!with_known_state(*found->second, [&](auto& own) { each_member(own, write); })) {
      throw Error(
          "TorchOptimizer: the optimizer's state is of a class that is not LibTorch's, so it cannot be saved. " +
          std::string("Derive the optimizer from levin::Optimizer and write state_dict() and load_state_dict()."));
    }
  }
  return state;
}

void TorchOptimizer::load_state_dict(const State& saved) {
  std::vector<Group> groups = saved_groups(saved);
  const auto params = parameters();
  int64_t flat_size = 0;
  if (needs_closure()) {
    for (const auto& param : params) flat_size += param.numel();
  }
  std::set<std::string> used;
  std::vector<std::unique_ptr<optim::OptimizerParamState>> states(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string prefix = std::to_string(i) + ".";
    const auto next = saved.tensors.lower_bound(prefix);
    if (next == saved.tensors.end() || !next->first.starts_with(prefix)) continue;
    for (auto it = next; it != saved.tensors.end() && it->first.starts_with(prefix); ++it) {
      if (!fits(it->second, params[i], flat_size)) {
        refuse_state("saved \"" + it->first +
                     "\" does not have the shape of its parameter. Load a checkpoint of the same model.");
      }
    }
    states[i] = fresh_state(*inner_);
    if (states[i] == nullptr) refuse_state("the optimizer is not one of LibTorch's, so its state cannot be loaded.");
    const Reader read{saved, prefix, params[i], used};
    with_known_state(*states[i], [&](auto& own) { each_member(own, read); });
  }
  for (const auto& [key, tensor] : saved.tensors) {
    if (!used.contains(key))
      refuse_state("the saved state holds \"" + key + "\", which is not of this optimizer or model.");
  }
  groups_ = std::move(groups);
  inner_->state().clear();
  for (size_t i = 0; i < params.size(); ++i) {
    if (states[i] != nullptr) inner_->state()[params[i].unsafeGetTensorImpl()] = std::move(states[i]);
  }
}

}  // namespace levin
