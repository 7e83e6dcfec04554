// What FabricRun refuses: calls in a wrong order, and what a loop of one's own gets wrong silently.
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/trainer/loops/fabric_run.h"
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
                (config_.optimizers().size() == 1 ? " was" : " were") +
                " set up. Give setup an optimizer; with several, call backward and optimizer.step().");
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
  if (has_backward_[optimizer] || (!run.has_peers() && run.precision->scaler() == nullptr)) return;
  const std::vector<at::Tensor> parameters = config_.optimizers()[optimizer]->parameters();
  if (std::none_of(parameters.begin(), parameters.end(), [](const at::Tensor& one) { return one.grad().defined(); })) {
    return;
  }
  throw Error(std::string("there are gradients that fabric.backward has not computed. loss.backward() does not ") +
              (run.has_peers() ? "reduce them over ranks" : "scale the loss, which the precision needs") +
              ". Call fabric.backward(loss) instead.");
}

}  // namespace levin
