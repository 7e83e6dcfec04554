// What FabricRun refuses: calls in a wrong order, and what a loop of one's own gets wrong silently.
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/precision/precision.h"
#include "levin/trainer/loops/fabric_run.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/step/step_engine.h"

namespace levin {

namespace {

[[noreturn]] void refuse_option(const char* option, const std::string& value, const char* instead) {
  throw ConfigError(std::string("FabricOptions.") + option + ": " + value +
                    " applies to Fabric.step alone, and this loop calls backward and optimizer.step. " + instead);
}

}  // namespace

void FabricRun::check_new_module(const torch::nn::Module& module, const OptimizerConfig& config,
                                 const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos) {
    throw Error("the module's name is \"" + name + "\". Give a name without dots.");
  }
  for (const auto& child : modules_->named_children()) {
    if (child.key() == name) {
      throw Error("a module named \"" + name + "\" was set up before. Give this one another name, as third argument.");
    }
    if (child.value().get() == &module) {
      throw Error("the module was set up before, as \"" + child.key() +
                  "\". Set it up once, with all of its optimizers.");
    }
  }
  std::vector<at::Tensor> known = modules_->parameters();
  for (const at::Tensor& parameter : module.parameters()) known.push_back(parameter);
  for (const auto& optimizer : config.optimizers()) {
    for (const at::Tensor& wanted : optimizer->parameters()) {
      if (std::any_of(known.begin(), known.end(), [&](const at::Tensor& one) { return one.is_same(wanted); })) continue;
      throw ConfigError(optimizer->name() + " of \"" + name +
                        "\" has a parameter that belongs to no module that was set up, so it would be in no "
                        "checkpoint. Register it in the module, or set up its module before.");
    }
  }
  for (const auto& scheduled : config.schedulers()) {
    if (scheduled.scheduler->wants_metric() && scheduled.options.frequency != 1) {
      throw ConfigError(scheduled.scheduler->name() + ".frequency: " + std::to_string(scheduled.options.frequency) +
                        " is not possible, because each value of fabric.log(\"" + scheduled.options.monitor +
                        "\", …) moves it. Leave it unset, and log the metric as often as it should be moved.");
    }
    if (!scheduled.scheduler->wants_total_steps()) continue;
    throw ConfigError(scheduled.scheduler->name() +
                      ".total_steps: it is unset, and the length of the loop is not known. Set total_steps.");
  }
}

size_t FabricRun::optimizer_of(const torch::nn::Module& module) const {
  const auto found =
      std::find_if(set_up_.begin(), set_up_.end(), [&](const SetUp& one) { return one.module == &module; });
  if (found == set_up_.end()) throw Error("the module was not set up. Call fabric.setup(module, optimizer) first.");
  if (found->count == 1) return found->first;
  throw Error("the module was set up with " + count_of(found->count, "optimizer") +
              ". Give the handle of an optimizer instead, from setup or fabric.optimizers().");
}

void FabricRun::check_step(const Run& run) const {
  if (config_.optimizers().size() != 1) {
    throw Error("it steps one optimizer, and " + count_of(config_.optimizers().size(), "optimizer") +
                " were set up. Give setup an optimizer" +
                (!lightning_modules().empty()
                     ? ", such as the module's own: fabric.setup(module, module.configure_optimizers())"
                     : "") +
                "; with several, call backward and optimizer.step().");
  }
  if (accumulates_) {
    throw Error("the gradients of backward() were not used yet. Call optimizer.step() or zero_grad() before.");
  }
  const Optimizer& optimizer = *config_.optimizers()[0];
  if (run.plan.accumulate_grad_batches == 1 || !optimizer.needs_closure()) return;
  throw ConfigError("FabricOptions.accumulate_grad_batches: " + std::to_string(run.plan.accumulate_grad_batches) +
                    " is not possible with " + optimizer.name() +
                    ", which evaluates its batch several times. Use 1 and a larger batch.");
}

void FabricRun::check_outside_step() const {
  if (closure_ == nullptr) return;
  throw Error("it was called inside the closure of Fabric.step, in the middle of a batch. Call it after step.");
}

OpenPass* FabricRun::pass_of(const Batch& batch) const {
  const auto found =
      std::find_if(passes_.begin(), passes_.end(), [&](OpenPass* one) { return &one->batch() == &batch; });
  if (found != passes_.end()) return *found;
  if (passes_.size() < 2) return passes_.empty() ? nullptr : passes_[0];
  throw Error(std::to_string(passes_.size()) +
              " passes over loaders are open, and the batch is of none of them, so it is not known which of them "
              "trains. Give step a batch as the loader gave it, and change it in the closure.");
}

void FabricRun::check_no_open_step(const Run& run) const {
  if (!run.fit.window_is_open() || accumulates_) return;
  const Window& window = run.fit.engine->window();
  throw Error("Fabric.step has accumulated the gradients of " + count_of(window.seen, "batch", "batches") + " of " +
              std::to_string(window.size) +
              ". Call step until global_step() changes, or use backward and optimizer.step() alone.");
}

void FabricRun::check_no_replicas() {
  const Strategy& strategy = *open().strategy;
  if (strategy.placement().replica_slots().size() < 2) return;
  throw Error(strategy.name() +
              " computes on replicas of the module, and this closure does not get one. Write fabric.step<Net>(batch, "
              "[](Net& net, const levin::Batch& part) { … }), with the module's class for Net.");
}

void FabricRun::check_one_module() const {
  const size_t count = modules_->children().size();
  if (count == 1) return;
  throw Error("its closure gets the module, and " + count_of(count, "module") + (count == 1 ? " was" : " were") +
              " set up. Set up one module that has the others as submodules.");
}

void FabricRun::check_manual(const Run& run) const {
  check_no_open_step(run);
  if (run.entry.replicas != nullptr) {
    throw Error(run.strategy->name() +
                " computes on replicas of the module, which only Fabric.step does. Use it, or ddp.");
  }
  if (run.strategy->gradients().micro_batches() > 1) {
    throw Error("the pipeline of " + run.strategy->name() +
                " splits each batch, which only Fabric.step does. Use it, or leave pipeline unset.");
  }
  const RunPlan& plan = run.plan;
  if (plan.accumulate_grad_batches > 1) {
    refuse_option("accumulate_grad_batches", std::to_string(plan.accumulate_grad_batches),
                  "Call optimizer.step() after as many calls of backward, and leave the option unset.");
  }
  if (plan.gradient_clip_val > 0) {
    refuse_option("gradient_clip_val", number_text(plan.gradient_clip_val),
                  "Call clip_gradients before optimizer.step(), and leave the option unset.");
  }
  if (plan.nonfinite_loss == NonFiniteLoss::skip || plan.nonfinite_loss == NonFiniteLoss::rollback) {
    refuse_option("nonfinite_loss", enum_name(plan.nonfinite_loss), "Set it to stop or ignore.");
  }
  if (plan.record_steps == RecordSteps::yes) refuse_option("record_steps", "true", "Leave the option unset.");
}

void FabricRun::check_forward() const {
  if (!forward_syncs_) {
    throw Error("the ranks did not begin this forward pass together. Call fabric.autocast() before it.");
  }
  if (*forward_syncs_ == syncs_) return;
  throw Error(syncs_
                  ? "the forward pass began inside the scope of no_backward_sync, which has ended. Let the scope end "
                    "after backward."
                  : "the forward pass began outside the scope of no_backward_sync, with a reduction that does not "
                    "follow. Open the scope before fabric.autocast(), around the forward and backward pass.");
}

void FabricRun::check_gradients(const Run& run, size_t optimizer) const {
  if (is_unreduced_) {
    throw Error(
        "the gradients are not reduced over ranks: the last backward was inside the scope of no_backward_sync. End the "
        "scope before the last forward and backward pass of an optimizer step.");
  }
  if (gradients_[optimizer].has_backward || (!run.has_peers() && run.precision->scaler() == nullptr)) return;
  const std::vector<at::Tensor> parameters = config_.optimizers()[optimizer]->parameters();
  if (std::none_of(parameters.begin(), parameters.end(), [](const at::Tensor& one) { return one.grad().defined(); })) {
    return;
  }
  throw Error(std::string("there are gradients that fabric.backward has not computed. loss.backward() does not ") +
              (run.has_peers() ? "reduce them over ranks" : "scale the loss, which the precision needs") +
              ". Call fabric.backward(loss) instead.");
}

// Note [Gradients that were used]
// An optimizer step leaves its gradients, and without zero_grad the next backward adds to them. A loop may want that,
// and with several optimizers one player's backward adds to the used gradients of another, who drops them before its
// own turn. So it is a warning, and only of the optimizer that steps with such gradients. Fabric::step drops gradients
// itself, so what it leaves is never wanted by a backward that follows.

namespace {

// Undefined if there is none.
at::Tensor first_gradient(const Optimizer& optimizer) {
  for (const Optimizer::Group& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params) {
      if (parameter.grad().defined()) return parameter.grad();
    }
  }
  return {};
}

}  // namespace

void FabricRun::note_used(size_t optimizer) {
  const at::Tensor gradient = first_gradient(*config_.optimizers()[optimizer]);
  if (!gradient.defined()) return;
  gradients_[optimizer].adds_to_used = false;
  gradients_[optimizer].used = gradient.unsafeGetTensorImpl();
  gradients_[optimizer].used_version = gradient._version();
}

// Whoever has changed the gradient since, such as zero_() by the user, has changed its version.
bool FabricRun::has_used(size_t optimizer) const {
  const Gradients& known = gradients_[optimizer];
  if (known.used == nullptr) return false;
  const at::Tensor gradient = first_gradient(*config_.optimizers()[optimizer]);
  return gradient.defined() && gradient.unsafeGetTensorImpl() == known.used &&
         gradient._version() == known.used_version;
}

void FabricRun::check_used_gradients() {
  for (size_t k = 0; k < gradients_.size(); ++k) {
    if (loop_ == Loop::steps && !accumulates_) {
      const at::Tensor left = first_gradient(*config_.optimizers()[k]);
      if (!left.defined() || !(left.is_sparse() ? left._values() : left).any().item<bool>()) continue;
      throw Error(
          "the gradients of the last Fabric.step are still there, and these would be added to them. Call "
          "optimizer.zero_grad() before.");
    }
    if (has_used(k)) gradients_[k].adds_to_used = true;
  }
}

void FabricRun::warn_of_gradients(size_t optimizer) {
  if (warned_of_gradients_) return;
  const bool has_none = !first_gradient(*config_.optimizers()[optimizer]).defined();
  if (!has_none && !gradients_[optimizer].adds_to_used && !has_used(optimizer)) return;
  warned_of_gradients_ = true;
  warn_of_run(has_none ? "there are no gradients, so the weights are not trained. Call fabric.backward(loss) before."
                       : "the gradients of the optimizer step before are used again, because they were not dropped "
                         "since. Call optimizer.zero_grad() before the next fabric.backward.");
}

std::string FabricRun::types_text(const Batch& failed) const {
  if (trainer_ == nullptr) return "";
  const std::vector<at::Tensor> parameters = modules_->parameters();
  const auto weight =
      std::find_if(parameters.begin(), parameters.end(), [](const at::Tensor& one) { return one.is_floating_point(); });
  if (weight == parameters.end()) return "";
  const std::string wanted = c10::toString(weight->scalar_type());
  std::string text = "The weights are " + wanted;
  for (size_t k = 0; k < failed.count(); ++k) {
    const at::Tensor& tensor = failed.tensors[k];
    if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == weight->scalar_type()) continue;
    text += ", and batch[" + std::to_string(k) + "] is " + c10::toString(tensor.scalar_type());
  }
  return text + ". Inputs and targets need the same type: " +
         (RunAccess::of(*trainer_).precision->dtype() ? "give the batch to fabric.to_device(batch), which converts it"
                                                      : "convert them, e.g. by .to(torch::k" + wanted + ")") +
         ", or choose the weights' type with FabricOptions.precision.";
}

}  // namespace levin
