#include "levin/trainer/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <filesystem>

#include "levin/core/console.h"
#include "levin/trainer/hook_caller.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

ConfigNode progress_values(const Progress& progress) {
  ConfigNode node = ConfigNode::map();
  auto set = [&](const char* name, int64_t value) { node.set(name, ValueType<int64_t>::write(value)); };
  const bool epoch_is_over = progress.processed > progress.epoch;
  set("epochs", progress.processed);
  set("next_batch", epoch_is_over ? 0 : progress.done_batches);
  set("global_step", progress.global_step);
  set("windows", progress.done_windows);
  set("total_batches", progress.done_total_batches);
  set("steps_in_epoch", epoch_is_over ? 0 : progress.steps_in_epoch);
  return node;
}

State module_state(const LightningModule& module) {
  State state;
  for (const auto& item : module.named_parameters()) state.tensors[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) state.tensors[item.key()] = item.value();
  return state;
}

std::string shape_text(const at::Tensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.sizes()) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "(" + text + ")";
}

}  // namespace

State gather_checkpoint(Run& run, bool weights_only) {
  State checkpoint;
  checkpoint.set<std::string>("levin_version", "0.1.0");
  checkpoint.set<int64_t>("epoch", run.progress.epoch);
  checkpoint.set<int64_t>("global_step", run.progress.global_step);
  checkpoint.set<bool>("weights_only", weights_only);
  checkpoint.values.set("hyper_parameters", run.module->hparams());
  checkpoint.put("model", module_state(*run.module));
  if (!weights_only) {
    checkpoint.values.set("progress", progress_values(run.progress));
    for (size_t i = 0; i < run.optimizers.size(); ++i) {
      checkpoint.put("optimizers." + std::to_string(i), run.optimizers[i].optimizer().state());
    }
    for (size_t i = 0; i < run.schedulers.size(); ++i) {
      checkpoint.put("lr_schedulers." + std::to_string(i), run.schedulers[i].scheduler->state());
    }
    for (const auto& callback : run.callbacks) {
      const State state = callback->state();
      if (!state.empty()) checkpoint.put("callbacks." + callback->state_key(), state);
    }
    if (run.data != nullptr) checkpoint.put("data", run.data->state());
    const at::Generator generator = at::detail::getDefaultCPUGenerator();
    checkpoint.tensors["rng.cpu"] = generator.get_state();
  }
  call_hook(
      run, Hook::on_save_checkpoint,
      [&](Callback& callback) { callback.on_save_checkpoint(run.trainer, *run.module, checkpoint); },
      [&](LightningModule& module) { module.on_save_checkpoint(checkpoint); });
  return checkpoint;
}

void restore_weights(LightningModule& module, const State& checkpoint, const std::string& path) {
  const State saved = checkpoint.part("model");
  const State own = module_state(module);
  std::vector<std::string> wrong;
  for (const auto& [name, tensor] : own.tensors) {
    const auto found = saved.tensors.find(name);
    if (found == saved.tensors.end()) {
      wrong.push_back("missing " + name + " " + shape_text(tensor));
    } else if (found->second.sizes() != tensor.sizes()) {
      wrong.push_back(name + " is " + shape_text(found->second) + " in the file and " + shape_text(tensor) +
                      " in the module");
    }
  }
  for (const auto& [name, tensor] : saved.tensors) {
    if (!own.tensors.contains(name)) wrong.push_back("unexpected " + name + " " + shape_text(tensor));
  }
  if (!wrong.empty()) {
    throw CheckpointError(path + ": its weights do not fit the module: " + join(wrong) +
                          ". Make the module with the hyper-parameters it was saved with.");
  }
  const at::AutoGradMode no_grad(false);
  for (const auto& [name, tensor] : own.tensors) at::Tensor(tensor).copy_(saved.tensors.at(name));
}

void restore_callbacks(Run& run, const State& checkpoint) {
  call_hook(
      run, Hook::on_load_checkpoint,
      [&](Callback& callback) { callback.on_load_checkpoint(run.trainer, *run.module, checkpoint); },
      [](LightningModule&) {});
  for (const auto& callback : run.callbacks) {
    const State state = checkpoint.part("callbacks." + callback->state_key());
    if (!state.empty()) callback->load_state(state);
  }
  const State data = checkpoint.part("data");
  if (run.data != nullptr && !data.empty()) run.data->load_state(data);
}

void restore_training(Run& run, const State& checkpoint, const std::string& path) {
  if (checkpoint.get<bool>("weights_only")) {
    throw CheckpointError(path +
                          ": it holds weights only, so training cannot continue from it. Use a full checkpoint, or "
                          "load the weights and start a new fit.");
  }
  State progress;
  progress.values = *checkpoint.values.find("progress");
  run.progress.epoch = run.progress.processed = progress.get<int64_t>("epochs");
  run.progress.first_batch = run.progress.done_batches = progress.get<int64_t>("next_batch");
  run.progress.global_step = progress.get<int64_t>("global_step");
  run.progress.windows = run.progress.done_windows = progress.get<int64_t>("windows");
  run.progress.total_batches = run.progress.done_total_batches = progress.get<int64_t>("total_batches");
  run.progress.steps_in_epoch = progress.get<int64_t>("steps_in_epoch");
  if (run.progress.epoch > run.plan.max_epochs) {
    throw CheckpointError(path + ": it was saved after " + std::to_string(run.progress.epoch) +
                          " epochs, and TrainerOptions.max_epochs is " + std::to_string(run.plan.max_epochs) +
                          ". Raise max_epochs to continue.");
  }
  for (size_t i = 0; i < run.optimizers.size(); ++i) {
    run.optimizers[i].optimizer().load_state(checkpoint.part("optimizers." + std::to_string(i)));
  }
  for (size_t i = 0; i < run.schedulers.size(); ++i) {
    run.schedulers[i].scheduler->load_state(checkpoint.part("lr_schedulers." + std::to_string(i)));
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(checkpoint.tensor("rng.cpu"));
}

std::string resolve_ckpt_path(Run& run, const std::string& ckpt_path) {
  if (ckpt_path != "best" && ckpt_path != "last") return ckpt_path;
  for (const auto& callback : run.callbacks) {
    if (!callback->is_checkpoint()) continue;
    const std::string path = callback->checkpoint_path(run.trainer, ckpt_path);
    if (!path.empty()) return path;
  }
  if (ckpt_path == "last" && run.stage == Stage::fit) {
    Console::instance().warn(
        "ckpt_path: last was asked for, but there is no checkpoint yet. Training starts from the beginning.");
    return "";
  }
  throw CheckpointError("ckpt_path: \"" + ckpt_path +
                        "\" was asked for, but no checkpoint callback has saved one. Give a path, or fit first.");
}

}  // namespace levin
