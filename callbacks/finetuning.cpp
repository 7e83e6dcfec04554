#include "levin/callbacks/finetuning.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "levin/callbacks/batch_norm.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

using Module = torch::nn::Module;

using TensorSet = std::unordered_set<const c10::TensorImpl*>;

std::unordered_map<const c10::TensorImpl*, std::string> names_of(const LightningModule& module) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const auto& item : module.named_parameters()) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  return names;
}

// `part` itself and all modules below it. Unlike modules(true) it accepts a `part` that no shared_ptr owns.
template <class Action>
void for_each_module(Module& part, Action action) {
  action(part);
  for (const auto& inner : part.modules(/*include_self=*/false)) action(*inner);
}

}  // namespace

std::vector<at::Tensor> trainable_parameters(const Module& module) {
  std::vector<at::Tensor> found;
  TensorSet seen;  // a layer may be registered twice, and an optimizer accepts every tensor once
  for (const auto& parameter : module.parameters()) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) found.push_back(parameter);
  }
  return found;
}

// ---- the hooks ---------------------------------------------------------------------------------------------------

// Lightning freezes for every entry point; here only for fit, because evaluations need no gradients.
void BaseFinetuning::setup(Trainer&, LightningModule& module, Stage stage) {
  fitting_ = stage == Stage::fit;
  if (!fitting_) return;
  restoring_ = noted_ = false;
  frozen_norms_.clear();
  groups_.clear();
  group_optimizers_.clear();
  module.configure_model();  // so that parts it creates can be frozen too
  freeze_before_training(module);
}

void BaseFinetuning::on_fit_start(Trainer& trainer, LightningModule& module) {
  check_optimizers(trainer, module);
  if (std::exchange(restoring_, false)) restore(trainer, module);
}

// Lightning warns when the group is to be added, adds nothing, and from then on changes the learning rate of the last
// group, which belongs to another part; here it is an error before the run.
void BaseFinetuning::check_optimizers(Trainer& trainer, LightningModule& module) const {
  const auto names = names_of(module);
  std::vector<std::string> frozen;
  std::string optimizer_name;
  for (auto& wrapped : trainer.optimizers()) {
    for (const auto& parameter : wrapped.optimizer().parameters()) {
      if (parameter.requires_grad()) continue;
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      frozen.push_back(found == names.end() ? "?" : found->second);
      optimizer_name = wrapped.optimizer().name();
    }
  }
  if (frozen.empty()) return;
  const size_t count = frozen.size();
  frozen.resize(std::min<size_t>(count, 3));
  throw ConfigError(state_key() + ": configure_optimizers gave " + optimizer_name + " " + std::to_string(count) +
                    " parameters that are frozen (" + join(frozen) + (count > 3 ? ", …" : "") +
                    "), so they could not get their own learning rate later. Give it "
                    "trainable_parameters(*this) instead of parameters().");
}

void BaseFinetuning::on_train_start(Trainer&, LightningModule&) {
  for (Module* norm : frozen_norms_) norm->eval();  // fit has put all modules into training mode
}

void BaseFinetuning::on_train_epoch_start(Trainer& trainer, LightningModule& module) {
  int64_t index = 0;
  for (auto& wrapped : trainer.optimizers()) {
    Optimizer& optimizer = wrapped.optimizer();
    const size_t before = optimizer.param_groups().size();
    finetune_function(module, trainer.current_epoch(), optimizer);
    note_groups(module, index++, optimizer, before);
  }
  note_trainable(module);
}

// ---- for subclasses ------------------------------------------------------------------------------------------------

std::shared_ptr<Module> BaseFinetuning::child(LightningModule& module, const std::string& name) const {
  const auto all = module.named_modules("", /*include_self=*/false);
  if (const auto* found = all.find(name)) return *found;
  std::vector<std::string> known;
  for (const auto& item : module.named_children()) known.push_back(item.key());
  throw ConfigError(state_key() + ": the module has no submodule \"" + name + "\". It has: " + join(known) + "." +
                    did_you_mean(name, known) + " Name an existing one, or call register_module(\"" + name + "\", …).");
}

// Lightning turns track_running_stats off, so a frozen BatchNorm keeps using each batch's statistics; here it is put in
// eval mode, because LibTorch's layer would also keep updating its running statistics.
void BaseFinetuning::freeze(Module& part, bool train_bn) {
  for_each_module(part, [&](Module& inner) {
    const bool is_norm = detail::is_batch_norm(inner);
    const bool trains = is_norm && train_bn;
    for (at::Tensor& parameter : inner.parameters(/*recurse=*/false)) parameter.set_requires_grad(trains);
    if (!is_norm) return;
    inner.train(trains);
    if (trains) frozen_norms_.erase(&inner);
    if (!trains) frozen_norms_.insert(&inner);
  });
}

void BaseFinetuning::make_trainable(Module& part, bool train_bn) {
  for_each_module(part, [&](Module& inner) {
    const bool is_norm = detail::is_batch_norm(inner);
    if (is_norm && !train_bn) return;
    for (at::Tensor& parameter : inner.parameters(/*recurse=*/false)) parameter.set_requires_grad(true);
    if (is_norm && frozen_norms_.erase(&inner) > 0) inner.train();
  });
}

std::vector<at::Tensor> BaseFinetuning::filter_params(Module& part, bool train_bn, bool requires_grad) {
  std::vector<at::Tensor> found;
  TensorSet seen;  // a layer may be registered twice
  for_each_module(part, [&](Module& inner) {
    if (!train_bn && detail::is_batch_norm(inner)) return;
    for (const at::Tensor& parameter : inner.parameters(/*recurse=*/false)) {
      const bool is_wanted = parameter.requires_grad() == requires_grad;
      if (is_wanted && seen.insert(parameter.unsafeGetTensorImpl()).second) found.push_back(parameter);
    }
  });
  return found;
}

bool BaseFinetuning::unfreeze_and_add_param_group(Module& part, Optimizer& optimizer, std::optional<double> lr,
                                                  double initial_denom_lr, bool train_bn) {
  make_trainable(part, train_bn);
  TensorSet known;
  for (const auto& parameter : optimizer.parameters()) known.insert(parameter.unsafeGetTensorImpl());
  ParamGroup group;
  for (const auto& parameter : filter_params(part, train_bn)) {
    if (!known.contains(parameter.unsafeGetTensorImpl())) group.params.push_back(parameter);
  }
  if (group.params.empty()) return false;
  group.lr = lr ? *lr : optimizer.param_groups().at(0).lr / initial_denom_lr;
  optimizer.add_param_group(std::move(group));
  return true;
}

// ---- state ---------------------------------------------------------------------------------------------------------

void BaseFinetuning::note_groups(LightningModule& module, int64_t optimizer_index, const Optimizer& optimizer,
                                 size_t first) {
  if (optimizer.param_groups().size() == first) return;
  const auto names = names_of(module);
  for (size_t i = first; i < optimizer.param_groups().size(); ++i) {
    std::vector<std::string> group;
    for (const auto& parameter : optimizer.param_groups()[i].params) {
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      if (found == names.end()) {
        throw Error(state_key() + ": finetune_function gave " + optimizer.name() + " a tensor of shape " +
                    at::str(parameter.sizes()) + ", which is not a parameter of the module. Register it there first.");
      }
      group.push_back(found->second);
    }
    groups_.push_back(std::move(group));
    group_optimizers_.push_back(optimizer_index);
  }
}

void BaseFinetuning::note_trainable(LightningModule& module) {
  trainable_.clear();
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad()) trainable_.push_back(item.key());
  }
  frozen_norm_names_.clear();
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (frozen_norms_.contains(item.value().get())) frozen_norm_names_.push_back(item.key());
  }
  noted_ = true;
}

void BaseFinetuning::restore(Trainer& trainer, LightningModule& module) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : module.named_parameters()) parameters[item.key()] = item.value();
  for (auto& [name, parameter] : parameters) {
    parameter.set_requires_grad(std::find(trainable_.begin(), trainable_.end(), name) != trainable_.end());
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    ParamGroup group;
    for (const auto& name : groups_[i]) {
      const auto found = parameters.find(name);
      if (found == parameters.end()) {
        throw CheckpointError(state_key() + ": the checkpoint's optimizer trains \"" + name +
                              "\", which the module does not have. Load a checkpoint of the same model.");
      }
      group.params.push_back(found->second);
    }
    const auto index = static_cast<size_t>(group_optimizers_[i]);
    if (index >= trainer.optimizers().size()) {
      throw CheckpointError(state_key() + ": the checkpoint has an optimizer " + std::to_string(index) +
                            ", and configure_optimizers returned " + std::to_string(trainer.optimizers().size()) +
                            ". Return the same optimizers.");
    }
    trainer.optimizers()[index].optimizer().add_param_group(std::move(group));
  }
  frozen_norms_.clear();
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const auto& names = frozen_norm_names_;
    if (std::find(names.begin(), names.end(), item.key()) == names.end()) continue;
    frozen_norms_.insert(item.value().get());
  }
  noted_ = true;
}

State BaseFinetuning::default_state_dict() const {
  State state;
  if (!noted_) return state;
  state.set("param_groups", groups_);
  state.set("param_group_optimizers", group_optimizers_);
  state.set("trainable", trainable_);
  state.set("frozen_batch_norms", frozen_norm_names_);
  return state;
}

void BaseFinetuning::load_default_state_dict(const State& saved) {
  if (!fitting_) return;
  groups_ = saved.get<std::vector<std::vector<std::string>>>("param_groups");
  group_optimizers_ = saved.get<std::vector<int64_t>>("param_group_optimizers");
  trainable_ = saved.get<std::vector<std::string>>("trainable");
  frozen_norm_names_ = saved.get<std::vector<std::string>>("frozen_batch_norms");
  if (groups_.size() != group_optimizers_.size()) {
    throw CheckpointError(state_key() + ": the saved state names " + std::to_string(groups_.size()) +
                          " groups of parameters and " + count_of(group_optimizers_.size(), "optimizer") +
                          " for them. It is damaged; use another checkpoint.");
  }
  restoring_ = true;
}

// ---- BackboneFinetuning ---------------------------------------------------------------------------------------------

BackboneFinetuning::BackboneFinetuning(BackboneFinetuningOptions options, LambdaFunc lambda_func)
    : options_(checked(std::move(options), "BackboneFinetuningOptions")), lambda_func_(std::move(lambda_func)) {}

void BackboneFinetuning::setup(Trainer& trainer, LightningModule& module, Stage stage) {
  if (stage == Stage::fit) {
    unfrozen_ = false;
    group_.reset();
  }
  BaseFinetuning::setup(trainer, module, stage);
}

void BackboneFinetuning::on_fit_start(Trainer& trainer, LightningModule& module) {
  if (trainer.optimizers().size() != 1) {
    throw ConfigError("BackboneFinetuning: it works with 1 optimizer, and configure_optimizers returned " +
                      std::to_string(trainer.optimizers().size()) +
                      ". Derive from BaseFinetuning to choose the one that trains the backbone.");
  }
  BaseFinetuning::on_fit_start(trainer, module);
}

// Lightning ignores train_bn here, so BatchNorm layers always train before the backbone does.
void BackboneFinetuning::freeze_before_training(LightningModule& module) {
  freeze(*child(module, options_.backbone), options_.train_bn);
}

void BackboneFinetuning::finetune_function(LightningModule& module, int64_t epoch, Optimizer& optimizer) {
  if (epoch < options_.unfreeze_backbone_at_epoch) return;
  const double lr = optimizer.param_groups().at(0).lr;
  if (!unfrozen_) {  // also in a later epoch, if the run resumes from one without this callback
    previous_backbone_lr_ = options_.backbone_initial_lr.value_or(lr * options_.backbone_initial_ratio_lr);
    const bool added = unfreeze_and_add_param_group(*child(module, options_.backbone), optimizer, previous_backbone_lr_,
                                                    options_.initial_denom_lr, options_.train_bn);
    if (added) group_ = static_cast<int64_t>(optimizer.param_groups().size()) - 1;
    unfrozen_ = true;
  } else {
    double next = lambda_func_(epoch + 1) * previous_backbone_lr_;
    if (options_.should_align) next = std::min(next, lr);
    if (group_) optimizer.param_groups().at(static_cast<size_t>(*group_)).lr = next;
    previous_backbone_lr_ = next;
  }
  if (options_.verbose) report(lr, previous_backbone_lr_);
}

void BackboneFinetuning::report(double lr, double backbone_lr) const {
  const double unit = std::pow(10.0, options_.rounding);
  const auto text = [&](double value) { return number_text(std::round(value * unit) / unit); };
  Console::instance().print("BackboneFinetuning: lr " + text(lr) + ", the backbone's " + text(backbone_lr) + ".");
}

State BackboneFinetuning::state_dict() const {
  State state = BaseFinetuning::state_dict();
  if (state.empty()) return state;
  state.set("unfrozen", unfrozen_);
  state.set("group", group_);
  state.set("previous_backbone_lr", previous_backbone_lr_);
  return state;
}

void BackboneFinetuning::load_state_dict(const State& saved) {
  if (!fitting_) return;
  BaseFinetuning::load_state_dict(saved);
  unfrozen_ = saved.get<bool>("unfrozen");
  group_ = saved.get<std::optional<int64_t>>("group");
  previous_backbone_lr_ = saved.get<double>("previous_backbone_lr");
}

}  // namespace levin
