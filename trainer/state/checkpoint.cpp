#include "levin/trainer/state/checkpoint.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/random.h"
#include "levin/core/tensors.h"
#include "levin/core/version.h"
#include "levin/libtorch/version.h"
#include "levin/strategies/accelerator.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/averaging_optimizers.h"
#include "levin/trainer/run/configured_training.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/run/run_reporter.h"
#include "levin/trainer/state/loader_state.h"
#include "levin/trainer/state/missing_state.h"
#include "levin/trainer/state/model_match.h"
#include "levin/trainer/state/progress_state.h"
#include "levin/trainer/state/sharded_state.h"
#include "levin/trainer/state/training_options.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/run_messages.h"
#include "levin/trainer/step/window_verdict.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// Ranks whose batches used different parameters have different gradients, but every message needs all ranks.
std::vector<bool> has_gradient_on_any_rank(RankCollectives& ranks, const std::vector<at::Tensor>& parameters) {
  const at::Tensor own = at::zeros({static_cast<int64_t>(parameters.size())}, at::kDouble);
  auto* numbers = own.mutable_data_ptr<double>();
  for (size_t k = 0; k < parameters.size(); ++k) numbers[k] = parameters[k].grad().defined() ? 1 : 0;
  const at::Tensor all = ranks.reduce(own, ReduceOp::max);
  std::vector<bool> somewhere;
  for (size_t k = 0; k < parameters.size(); ++k) somewhere.push_back(all.const_data_ptr<double>()[k] > 0);
  return somewhere;
}

bool has_window_gradients(const Run& run) {
  return run.fit.window_is_open() && !run.fit.epoch.batch_running;
}

// The gradients of an accumulation window that is still open: the batches seen so far. Ranks have not reduced theirs
// yet; each continues with the mean, because the window's last backward averages what they hold.
State window_gradients(Run& run) {
  State state;
  if (!has_window_gradients(run) || run.fit.engine->window().has_nonfinite_loss) return state;
  if (run.strategy->sharding().has_sharded_weights())
    return reduced_gradients(run.strategy->sharding(), *run.entry.module);
  const auto parameters = run.entry.module->named_parameters();
  if (!run.has_peers() || run.entry.failing) {
    for (const auto& item : parameters) {
      if (item.value().grad().defined()) state.tensors[item.key()] = item.value().grad();
    }
    return state;
  }
  const std::vector<bool> somewhere = has_gradient_on_any_rank(run.strategy->ranks(), parameters.values());
  for (size_t k = 0; k < somewhere.size(); ++k) {
    if (!somewhere[k]) continue;
    const at::Tensor& parameter = parameters[k].value();
    const at::Tensor own = parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter.detach());
    state.tensors[parameters[k].key()] = run.strategy->ranks().reduce(own, ReduceOp::mean);
  }
  return state;
}

// The state that only the other ranks have: random numbers of their processes and GPUs.
void put_other_ranks(Run& run, State& checkpoint) {
  if (!run.has_peers() || run.entry.failing) return;
  const State own = random_state();
  auto put = [&](const std::string& kind, const at::Tensor& state) {
    const at::Tensor states = run.strategy->ranks().gather(state);  // (world, bytes)
    for (int64_t rank = 1; rank < states.size(0); ++rank) {
      checkpoint.tensors["rng." + kind + ".rank" + std::to_string(rank)] = states[rank].clone();
    }
  };
  put("cpu", own.tensors.at("cpu"));
  const at::Device device = run.strategy->placement().device();
  if (device.is_cpu()) return;
  const std::string kind = accelerator_name(device.type());
  const auto state = own.tensors.find(kind + "." + std::to_string(device.index()));
  if (state != own.tensors.end()) put(kind, state->second);
}

}  // namespace

State run_state(Run& run) {
  // Called before gradients are averaged over ranks.
  if (!run.entry.failing && has_window_gradients(run)) run.fit.engine->agree_on_weights();
  State gradients = window_gradients(run);
  if (has_window_gradients(run) && !run.fit.engine->keeps_gradients(gradients, run.entry.failing)) gradients = State();
  State checkpoint;
  checkpoint.set<int64_t>("epoch", run.progress.epoch);
  checkpoint.set<int64_t>("global_step", run.progress.global_step);
  checkpoint.put("progress", progress_state(run));
  checkpoint.put("metrics", metrics_state(run));
  run.drain_logs();
  const HookScope scope(run.entry, Hook::state_dict);
  for (size_t i = 0; i < run.loggers.size(); ++i) {
    run.loggers[i]->save();  // a resumed run removes the rows after its position
    checkpoint.put("loggers." + std::to_string(i), run.loggers[i]->state_dict());
  }
  for (size_t i = 0; i < run.fit.optimizers().size(); ++i) {
    checkpoint.put("optimizers." + std::to_string(i), run.fit.optimizers()[i].optimizer().state_dict());
  }
  for (size_t i = 0; i < run.fit.schedulers.size(); ++i) {
    checkpoint.put("lr_schedulers." + std::to_string(i), run.fit.schedulers[i].scheduler->state_dict());
  }
  for (const auto& callback : run.entry.callbacks) {
    const State state = callback->state_dict();
    if (!state.empty()) checkpoint.put("callbacks." + callback->state_key(), state);
  }
  State options;
  options.values = present_training(run);
  checkpoint.put("options", options);
  checkpoint.put("precision", run.precision->state_dict());
  checkpoint.put("strategy", run.strategy->gradients().state_dict());
  if (run.entry.data != nullptr) checkpoint.put("data", run.entry.data->state_dict());
  checkpoint.put("gradients", gradients);
  checkpoint.put("rng", random_state());
  put_other_ranks(run, checkpoint);
  put_loader_state(run, checkpoint);
  return checkpoint;
}

namespace {

// Replaces parts of the checkpoint by the parts of `state`.
void replace_parts(State& checkpoint, const State& state) {
  for (const auto& entry : state.values.entries) {
    if (entry.value.kind == ConfigNode::Kind::map) {
      checkpoint.put(entry.key, state.part(entry.key));
    } else {
      checkpoint.values.set(entry.key, entry.value);
    }
  }
}

void put_run_state(Run& run, State& checkpoint) {
  replace_parts(checkpoint, run.entry.before_validation ? *run.entry.before_validation : run_state(run));
}

// Between the request and the capture an epoch may have ended. Weights alone say the same epoch as a whole checkpoint.
void put_position(Run& run, CheckpointRequest& request) {
  if (!request.weights_only) return put_run_state(run, request.state);
  const auto& before = run.entry.before_validation;
  request.state.set("epoch", before ? before->get<int64_t>("epoch") : run.progress.epoch);
}

}  // namespace

State gather_checkpoint(Run& run, bool weights_only) {
  Strategy& strategy = *run.strategy;
  const bool has_left_shards =
      run.has_peers() && strategy.sharding().shards_modules() && !strategy.sharding().is_sharded();
  if (!weights_only && has_left_shards && !run.fit.optimizers().empty()) {
    throw CheckpointError("a checkpoint of the whole state cannot be saved after the end of fit with " +
                          strategy.name() +
                          ": each rank is left with its part of the optimizer's state. Save in on_fit_end or before, "
                          "or the weights alone (weights_only).");
  }
  // The state must not count an update that a loss has stopped because it was not finite. After a failure the window's
  // start is saved instead.
  if (!run.entry.failing && run.fit.engine != nullptr) run.fit.engine->finish_checks(/*receives_flags=*/false);
  State checkpoint;
  checkpoint.set<std::string>("levin_version", version());
  checkpoint.set<std::string>("torch_version", torch_version());
  checkpoint.set<int64_t>("epoch", run.progress.epoch);
  checkpoint.set<int64_t>("global_step", run.progress.global_step);
  checkpoint.set<bool>("weights_only", weights_only);
  checkpoint.values.set("hyper_parameters", run.entry.module->hparams());
  checkpoint.set("model_class", model_class(*run.entry.module));
  checkpoint.set("model_precision", run.precision->name());
  checkpoint.put("model", module_state(*run.entry.module));
  call_callbacks(run.entry, Hook::weights_to_save, [&](Callback& callback) {
    const State saved = callback.weights_to_save(*run.entry.module);
    for (const auto& [name, weight] : saved.tensors) checkpoint.tensors["model." + name] = weight;
    for (const auto& entry : saved.values.entries) checkpoint.values.set(entry.key, entry.value);
  });
  put_averages(run, checkpoint, weights_only);
  if (!weights_only) {
    put_run_state(run, checkpoint);
    call_callbacks(run.entry, Hook::on_save_checkpoint, [&](Callback& callback) {
      callback.on_save_checkpoint(run.trainer, *run.entry.module, checkpoint);
    });
  }
  call_module(run.entry, Hook::on_save_checkpoint, [&](LightningModule& m) { m.on_save_checkpoint(checkpoint); });
  return checkpoint;
}

namespace {

// A rollback goes to the newest file that is on the disk.
void note_when_done(Run& run, CheckpointRequest& request) {
  const bool whole = !request.weights_only;
  request.done = [&run, whole, path = request.path, step = run.progress.global_step, epoch = run.progress.processed,
                  then = std::move(request.done)](const std::string& error) {
    ++(error.empty() ? run.entry.saves.good : run.entry.saves.failed);
    if (!error.empty()) run.entry.saves.last_failure = error;
    if (error.empty() && whole) note_whole_save(run, path);
    if (error.empty() && run.reporter != nullptr) run.reporter->saved(run, path, step, epoch);
    if (error.empty()) upload_soon(run.entry);
    if (then) return then(error);
    if (!error.empty()) Console::instance().error(error);
  };
}

}  // namespace

void note_whole_save(Run& run, const std::string& path) {
  run.newest_checkpoint = path;
  run.fit.rollbacks = 0;
}

void request_checkpoint(Run& run, CheckpointRequest request) {
  if (run.entry.failing && run.strategy->sharding().is_sharded()) {
    return Console::instance().warn("checkpoint " + request.path + ": " + run.strategy->name() +
                                    " needs all ranks for one, and after a failure they cannot be asked. It is not "
                                    "saved; continue from an older one.");
  }
  if (request.link_to.empty()) request.state = gather_checkpoint(run, request.weights_only);
  if (!request.weights_only) run.fit.saved_batches = run.progress.total_batches;
  run.entry.checkpoint_requests.push_back(std::move(request));
}

void capture_checkpoints(Run& run) {
  if (run.entry.checkpoint_requests.empty()) return;
  std::vector<CheckpointRequest> requests = std::exchange(run.entry.checkpoint_requests, {});
  std::vector<std::string> files;
  run.drain_logs();
  for (const auto& logger : run.loggers) {
    logger->save();  // the rows that the checkpoint refers to
    for (std::string& file : logger->files()) files.push_back(std::move(file));
  }
  for (CheckpointRequest& request : requests) {
    if (request.link_to.empty()) put_position(run, request);
  }
  for (CheckpointRequest& request : requests) prepare_for_writing(*run.strategy, run.fit, request);
  for (CheckpointRequest& request : requests) note_when_done(run, request);
  run.checkpoint_writer.submit(std::move(requests), std::move(files));
}

void check_saves(Run& run) {
  if (run.entry.stage != Stage::fit) return;
  const Saves& saves = run.entry.saves;
  const std::string of_all = std::to_string(saves.failed) + " of " + std::to_string(saves.good + saves.failed);
  std::string problem;
  if (saves.failed > 0 && saves.good == 0) {
    problem = "the fit has ended, but nothing of it is saved: all of its checkpoints failed (" + of_all +
              "). The last failure: " + saves.last_failure +
              (run.newest_checkpoint.empty() ? " There is no checkpoint to continue from."
                                             : " It can be continued from " + run.newest_checkpoint + " alone.") +
              " Make room, or set another dirpath, and train again.";
  }
  if (run.has_peers()) {
    for (const std::string& text : run.strategy->ranks().gather(problem)) problem = problem.empty() ? text : problem;
  }
  if (!problem.empty()) throw CheckpointError(problem);
  if (saves.failed == 0) return;
  Console::instance().warn(of_all +
                           " checkpoints of this fit could not be saved. The last failure: " + saves.last_failure);
}

void restore_callbacks(Run& run, const State& checkpoint) {
  call_hook(
      run.entry, Hook::on_load_checkpoint,
      [&](Callback& callback) { callback.on_load_checkpoint(run.trainer, *run.entry.module, checkpoint); },
      [](LightningModule&) {});
  naming_checkpoint(run.entry.ckpt_path, [&] {
    const HookScope scope(run.entry, Hook::load_state_dict);
    for (const auto& callback : run.entry.callbacks) {
      const State state = checkpoint.part("callbacks." + callback->state_key());
      if (!state.empty()) callback->load_state_dict(state);
    }
    const State data = checkpoint.part("data");
    if (run.entry.data != nullptr && !data.empty()) run.entry.data->load_state_dict(data);
  });
}

namespace {

// A file holds tensors row by row; the gradients of the next batches have the layout of the parameter.
at::Tensor laid_out_as(const at::Tensor& parameter, const at::Tensor& saved) {
  at::Tensor gradient = saved.to(parameter.options());
  if (gradient.sizes() != parameter.sizes() || gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter.detach()).copy_(gradient);
}

void note_other_seed(const std::string& path, bool was_set, uint64_t given) {
  if (!was_set || given == default_seed()) return;
  note_of_run("Continuing from " + path + ": the seed of this start, " + std::to_string(given) +
              ", is not used; the order of the data follows the run's own, " + std::to_string(default_seed()) + ".");
}

void restore_run(Run& run, const State& checkpoint, const std::string& path) {
  check_is_whole(checkpoint, path);
  const bool seed_was_set = seed_is_set();
  const uint64_t given_seed = default_seed();
  load_progress(run, checkpoint.part("progress"));
  note_other_seed(path, seed_was_set, given_seed);
  // A run that had decided to stop does so when it resumes automatically; a user who names a checkpoint wants to
  // continue.
  if (!run.auto_resume && !run.fit.epoch.running) run.entry.stop = false;
  if (run.progress.epoch > run.plan.max_epochs) {
    throw CheckpointError(path + ": it was saved after " + count_of(run.progress.epoch, "epoch") +
                          ", and TrainerOptions.max_epochs is " + std::to_string(run.plan.max_epochs) +
                          ". Raise max_epochs to continue.");
  }
  const HookScope scope(run.entry, Hook::load_state_dict);
  restore_optimization(run, checkpoint, path);
  restore_trained_weights(run, checkpoint);
  run.precision->load_state_dict(checkpoint.part("precision"));
  run.strategy->gradients().load_state_dict(checkpoint.part("strategy"));
  load_metrics(run, checkpoint.part("metrics"));
  run.drain_logs();
  for (size_t i = 0; i < run.loggers.size(); ++i) {
    run.loggers[i]->load_state_dict(checkpoint.part("loggers." + std::to_string(i)));
  }
  const State gradients = checkpoint.part("gradients");
  for (auto& item : run.entry.module->named_parameters()) {
    const auto found = gradients.tensors.find(item.key());
    if (found != gradients.tensors.end()) item.value().mutable_grad() = laid_out_as(item.value(), found->second);
  }
  run.fit.resumed = true;
  run.fit.resumed_rng = checkpoint.part("rng");
  run.fit.resumed_loader = checkpoint.part("train_loader");
  run.newest_checkpoint = path;
  run.fit.saved_batches = run.progress.total_batches;
}

}  // namespace

void check_is_whole(const State& checkpoint, const std::string& path) {
  if (!checkpoint.get<bool>("weights_only")) return;
  throw CheckpointError(path +
                        ": it holds weights only, so training cannot continue from it. Use a full checkpoint, or "
                        "load the weights and start a new fit.");
}

void restore_training(Run& run, const State& checkpoint, const std::string& path) {
  naming_checkpoint(path, [&] { restore_run(run, checkpoint, path); });
  warn_of_missing_state(run, checkpoint, path);
}

void restore_random_numbers(Run& run) {
  if (run.fit.resumed_rng.tensors.empty()) return;
  const State saved = std::exchange(run.fit.resumed_rng, {});
  const int64_t rank = run.strategy->ranks().rank();
  naming_checkpoint(run.newest_checkpoint, [&] { restore_random_state(saved, rank); });
  // The checkpoint is of fewer ranks, or was saved by rank 0 alone after a failure: this rank has rank 0's numbers.
  if (!saved.tensors.contains("cpu.rank" + std::to_string(rank))) {
    separate_random_numbers(run.strategy->ranks(), run.progress.global_step);
  }
}

void roll_back(Run& run, const State& checkpoint, const std::string& path) {
  State weights = checkpoint;
  const State training = checkpoint.part("current_model");  // if "model" is an average of weights
  if (!training.empty()) weights.put("model", training);
  run.strategy->sharding().is_sharded() ? restore_parts(run.strategy->sharding(), *run.entry.module, weights, path)
                                        : restore_weights(*run.entry.module, weights, path);
  // The schedules continue from their present positions, and so do the numbers that they have set.
  std::vector<std::vector<Optimizer::Group>> now;
  for (auto& wrapped : run.fit.optimizers()) now.push_back(wrapped.optimizer().param_groups());
  restore_optimizers(run.strategy->sharding(), run.fit, checkpoint);
  for (size_t i = 0; i < now.size(); ++i) {
    auto& groups = run.fit.optimizers()[i].optimizer().param_groups();
    for (size_t k = 0; k < groups.size(); ++k) {
      groups[k].lr = now[i][k].lr;
      groups[k].momentum = now[i][k].momentum;
      groups[k].weight_decay = now[i][k].weight_decay;
    }
  }
}

}  // namespace levin
