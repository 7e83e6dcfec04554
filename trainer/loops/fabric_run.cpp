#include "levin/trainer/loops/fabric_run.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <typeinfo>
#include <utility>

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/precision/autocast.h"
#include "levin/trainer/loops/fabric_options.h"
#include "levin/trainer/loops/plan_recomputation.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/run/failed_place.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/lr_schedulers.h"
#include "levin/trainer/run/make_replicas.h"
#include "levin/trainer/run/memory_report.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/run/run_folders.h"
#include "levin/trainer/run/run_reporter.h"
#include "levin/trainer/run/set_up_optimizers.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/state/missing_state.h"
#include "levin/trainer/state/model_match.h"
#include "levin/trainer/state/rollback.h"
#include "levin/trainer/state/sharded_state.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/out_of_memory.h"
#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/step_engine.h"
#include "levin/trainer/step/window_verdict.h"
#include "levin/trainer/trainer.h"

namespace levin {

at::Tensor FabricModules::training_step(const Batch& batch, int64_t) {
  if (run_.closure_ == nullptr) throw Error("no Fabric.step is running, so there is no closure that computes a loss.");
  return (*run_.closure_)(*children()[0], batch);
}

std::shared_ptr<torch::nn::Module> FabricModules::clone(const std::optional<at::Device>& device) const {
  auto copy = std::make_shared<FabricModules>(run_);
  for (const auto& child : named_children()) {
    try {
      copy->register_module(child.key(), child.value()->clone(device));
    } catch (const c10::Error& error) {
      throw ConfigError("FabricOptions.strategy: dp needs a copy of " + child.value()->name() +
                        " for each device: derive the class from torch::nn::Cloneable, or override clone(). " +
                        error.what_without_backtrace());
    }
  }
  return copy;
}

void FabricModules::on_save_checkpoint(State& checkpoint) {
  run_.add_to_checkpoint(checkpoint);
}

FabricRun::FabricRun(FabricOptions options) : modules_(std::make_shared<FabricModules>(*this)) {
  add_builtins();
  try {
    options_ = trainer_options(checked(std::move(options), "FabricOptions"));
    const RunPlan plan = resolve_plan(options_);
    needs_launch_ = plan.devices * plan.num_nodes > 1;
  } catch (const ConfigError& error) {
    throw config_error_for_call("Fabric", error);
  }
}

FabricRun::~FabricRun() = default;

void FabricRun::launch() {
  if (trainer_ != nullptr) {
    throw Error("the run has begun: launch was called before, or a function that begins it. Call launch once, first.");
  }
  start();
}

Run& FabricRun::open() {
  if (has_ended_) throw Error("the run has ended (finish). Make another Fabric.");
  if (is_half_loaded_) {
    throw Error(
        "a load has failed halfway, so a part of the run comes from the file. Load another checkpoint, or "
        "make another Fabric.");
  }
  if (trainer_ == nullptr && needs_launch_) {
    throw Error("the options ask for several ranks, which do not run yet. Call fabric.launch() first.");
  }
  if (trainer_ == nullptr) start();
  return RunAccess::of(*trainer_);
}

Run& FabricRun::read() {
  return has_ended_ && trainer_ != nullptr ? RunAccess::of(*trainer_) : open();
}

void FabricRun::start() {
  trainer_ = RunAccess::make_guest(options_);
  Run& run = RunAccess::of(*trainer_);
  try {
    run.fit = Fit(run.plan);
    entry_.emplace(run, EntryTarget{.module = *modules_, .host = EntryHost::guest});
    check_same_options(run);
    assemble_callbacks(run);
    run.entry.torn_down = run.entry.callbacks.size() + 2;  // hooks are called by Fabric::call alone
    start_loggers(run);
    run.entry.phase = Phase::train;
    if (run.reporter != nullptr) run.reporter->begin(run, false);
  } catch (...) {
    entry_.reset();
    trainer_.reset();
    throw;
  }
}

Run& FabricRun::begin() {
  Run& run = open();
  if (run.fit.engine != nullptr) return run;
  if (modules_->children().empty()) throw Error("no module was set up. Call fabric.setup(module, optimizer) first.");
  modules_->set_automatic_optimization(config_.optimizers().size() == 1);
  if (run.strategy->placement().replica_slots().size() > 1) {
    check_one_module();
    make_replicas(run);
  }
  start_sequential_calls(run.entry);
  run.strategy->set_up(module_tensors(*modules_), /*training=*/true);
  use_optimizers(run, config_);
  check_same_optimizers(run.strategy->ranks(), run.fit);
  separate_random_numbers(run.strategy->ranks(), run.progress.global_step);
  return run;
}

// Note [Two kinds of loops]
// In step() the engine may judge losses late, and record steps; in a loop with backward() it may do neither, because
// user code acts between backward and the update. The engine decides in StepEngine::begin, by the module's
// automatic_optimization.
void FabricRun::use_loop(Run& run, Loop loop) {
  if (begun_ != loop) {
    end_engine(run);
    modules_->set_automatic_optimization(loop == Loop::steps);
    run.fit.engine->begin();
    begun_ = loop;
  }
  loop_ = loop;
}

void FabricRun::end_engine(Run& run) {
  if (!begun_) return;
  run.fit.engine->finish_checks(/*receives_flags=*/true);
  run.fit.engine->end();
  begun_.reset();
}

std::optional<size_t> FabricRun::setup(const std::shared_ptr<torch::nn::Module>& module, const OptimizerConfig& config,
                                       const std::string& name) {
  Run& run = open();
  if (run.fit.engine != nullptr) {
    throw Error("training has begun, and the strategy has its modules. Set up all modules before the loop.");
  }
  if (module == nullptr) throw Error("the module is a null pointer.");
  check_new_module(*module, config, name);
  const DevicePlacement& placement = run.strategy->placement();
  if (placement.takes_several_devices() && placement.replica_slots().empty() && !set_up_.empty()) {
    throw Error(run.strategy->name() +
                " places the parts of one module, and a module was set up before. Set up one module that has the "
                "others as submodules.");
  }
  if (const auto dtype = run.precision->dtype()) module->to(*dtype);
  run.strategy->placement().place(*module);
  modules_->register_module(name, module);
  const size_t first = config_.optimizers().size();
  for (size_t k = 0; k < config.optimizers().size(); ++k) {
    config_.add_shared(config.optimizers()[k]);
    for (const auto& scheduled : config.schedulers()) {
      if (scheduled.optimizer_index == k) config_.schedule_shared(scheduled.scheduler, scheduled.options);
    }
  }
  set_up_.push_back({module.get(), first, config.optimizers().size()});
  gradients_.resize(config_.optimizers().size());
  return config.optimizers().empty() ? std::nullopt : std::optional(first);
}

at::Tensor FabricRun::step(const Batch& batch, const Fabric::ReplicaClosure& closure) {
  check_outside_step();
  Run& run = begin();
  check_step(run);
  OpenPass* pass = pass_of(batch);
  use_loop(run, Loop::steps);
  const auto running = set_in_scope(closure_, &closure);
  at::Tensor loss;
  try {
    loss = train_batch(run, batch, pass);
  } catch (...) {
    failed_batch_ = batch;
    if (pass != nullptr) pass->position().next_batch = pass->index() + 1;
    run.fit.epoch.batch_running = false;
    run.fit.engine->drop_window();
    throw;
  }
  between_batches(run);
  return loss;
}

// As FitLoop::train_batch, without its hooks, metrics and validation.
at::Tensor FabricRun::train_batch(Run& run, const Batch& batch, OpenPass* pass) {
  Epoch& epoch = run.fit.epoch;
  Progress& progress = run.progress;
  StepEngine& engine = *run.fit.engine;
  if (pass != nullptr && !std::exchange(pass->position().stepped, true)) {
    epoch = {.running = true, .first_step = progress.global_step};
  }
  count_pass(run, pass);
  epoch.batch_idx = pass != nullptr ? pass->index() : epoch.batch_idx + 1;
  const TimeSplit::Running timed(run.entry.time_split);
  run.entry.time_split.begin_step();
  if (!engine.window_is_open()) {
    const int64_t left = pass != nullptr ? pass->batches_left() : kUnlimited;
    engine.open_window(std::min(progress.accumulate, left), epoch.batch_idx);
  }
  epoch.batch_running = true;
  note_place(run, epoch.batch_idx);
  const int64_t samples = std::max<int64_t>(1, batch.size());
  run.entry.place = {.batch_size = samples};
  const int64_t steps_before = progress.global_step;
  const bool is_last = pass != nullptr && pass->is_last();
  const at::Tensor loss = engine.step(batch, {.epoch = progress.epoch,
                                              .batch_idx = epoch.batch_idx,
                                              .total_batches = progress.total_batches,
                                              .is_last = is_last,
                                              .length_is_known = pass == nullptr || pass->knows_length()});
  roll_back_if_due(run);
  if (engine.window_is_done()) close_window(run, steps_before);
  epoch.next_batch = epoch.batch_idx + 1;
  ++progress.total_batches;
  run.entry.samples += samples;
  epoch.batch_running = false;
  if (pass == nullptr) return loss;
  pass->position().next_batch = epoch.next_batch;
  if (is_last && !std::exchange(pass->position().finished, true)) step_schedulers(run, Interval::epoch, false);
  return loss;
}

// A pass without training, such as a validation, is not an epoch.
void FabricRun::count_pass(Run& run, OpenPass* pass) {
  if (pass == nullptr || std::exchange(pass->position().trained, true)) return;
  run.progress.epoch = run.progress.processed = pass->position().epoch;
}

void FabricRun::close_window(Run& run, int64_t steps_before) {
  run.fit.engine->close_window();
  run.progress.window_stepped = run.progress.global_step > steps_before;
  ++run.progress.windows;
  if (run.progress.window_stepped) step_schedulers(run, Interval::step, false);
}

void FabricRun::finish_steps(Run& run) {
  if (run.fit.window_is_open() && !accumulates_) {
    use_loop(run, Loop::steps);  // the window may be a checkpoint's
    const int64_t steps_before = run.progress.global_step;
    run.fit.engine->update_cut_window({.epoch = run.progress.epoch,
                                       .batch_idx = run.fit.epoch.batch_idx,
                                       .total_batches = run.progress.total_batches});
    close_window(run, steps_before);
  }
  step_schedulers(run, Interval::epoch, false);
}

// Here, because only the loop knows when a value belongs to an epoch; so a checkpoint that is saved after log() has the
// move. All ranks use rank 0's value, which is the one that the loggers get.
void FabricRun::move_plateau_schedulers(Run& run, const Metrics& metrics) {
  for (const LRSchedulerConfig& config : run.fit.schedulers) {
    const auto found = metrics.find(config.options.monitor);
    if (!config.scheduler->wants_metric() || found == metrics.end()) continue;
    config.scheduler->step(
        run.strategy->ranks().gather(at::scalar_tensor(found->second, at::kDouble))[0].item<double>());
  }
}

void FabricRun::warn_of_unmoved_schedulers(const Run& run) {
  for (const LRSchedulerConfig& config : run.fit.schedulers) {
    if (!config.scheduler->wants_metric() || config.scheduler->last_epoch > 0) continue;
    Console::instance().warn("Fabric: " + config.scheduler->name() + " was never moved: no value of \"" +
                             config.options.monitor + "\" was logged. Call fabric.log(\"" + config.options.monitor +
                             "\", value) after each epoch.");
  }
}

void FabricRun::log(const Metrics& metrics, std::optional<int64_t> step) {
  Run& run = open();
  trainer_->log_now(metrics, step.value_or(run.progress.global_step));
  if (loop_ == Loop::steps) move_plateau_schedulers(run, metrics);
}

void FabricRun::start_epoch(Run& run, int64_t epoch) {
  run.fit.engine->finish_checks(/*receives_flags=*/true);
  run.progress.epoch = run.progress.processed = epoch;
  run.fit.epoch = Epoch();
}

void FabricRun::finish_pass(OpenPass& pass) {
  Run& run = open();
  if (pass.position().stepped && !std::exchange(pass.position().finished, true)) finish_steps(run);
  start_epoch(run, pass.position().epoch + 1);
}

void FabricRun::end_epoch() {
  check_outside_step();
  if (!passes_.empty()) throw Error("a pass over a loader is open, and it ends its epoch itself. Leave its loop.");
  Run& run = begin();
  if (loop_ == Loop::steps) finish_steps(run);
  start_epoch(run, run.progress.epoch + 1);
  between_batches(run);
}

void FabricRun::leave_pass(OpenPass& pass) {
  std::erase(passes_, &pass);
  if (!pass.position().stepped || pass.is_over()) return;
  Run& run = RunAccess::of(*trainer_);
  if (run.fit.window_is_open() && !accumulates_) run.fit.engine->drop_window();
  run.fit.epoch = Epoch();
}

std::shared_ptr<FabricSource> FabricRun::setup_loader(const Loaders& loader, const FabricLoaderOptions& options) {
  if (std::any_of(sources_.begin(), sources_.end(), [](const auto& source) { return source->resumed.has_value(); })) {
    throw Error(
        "the checkpoint continues inside a pass over a loader that was set up before load, and a new loader begins at "
        "its first batch. Set up all loaders before load, and continue with their handles.");
  }
  sources_.push_back(set_up_source(open(), loader, options));
  return sources_.back();
}

std::shared_ptr<OpenPass> FabricRun::begin_pass(const std::shared_ptr<FabricSource>& source, int64_t epoch) {
  Run& run = open();
  if (source->pass != nullptr) throw Error("a pass over this loader is open. Leave its loop first.");
  auto pass = std::make_shared<OpenPass>(run, source, epoch,
                                         PassEvents{.on_end = [this](OpenPass& one) { finish_pass(one); },
                                                    .on_leave = [this](OpenPass& one) { leave_pass(one); }});
  passes_.push_back(pass.get());
  return pass;
}

void FabricRun::between_batches(Run& run) {
  run.has_trained = true;
  capture_checkpoints(run);
  run.checkpoint_writer.poll();
  if (run.reporter != nullptr) run.reporter->poll(run);
}

std::shared_ptr<void> FabricRun::enter_forward() {
  Run& run = begin();
  if (run.has_peers() && at::GradMode::is_enabled() && closure_ == nullptr) {
    run.strategy->gradients().before_forward(syncs_);
    forward_syncs_ = syncs_;
  }
  return std::make_shared<ForwardScope>(*run.precision, run.strategy->placement().device().type());
}

void FabricRun::backward(const at::Tensor& loss) {
  if (closure_ != nullptr) {
    throw Error("it was called in the closure of Fabric.step, which does the backward pass. Return the loss instead.");
  }
  Run& run = begin();
  check_manual(run);
  if (run.has_peers()) check_forward();
  if (!loss.defined()) throw Error("the loss is undefined. Every rank gives a loss.");
  check_loss(loss);
  check_used_gradients();
  use_loop(run, Loop::manual);
  OpenPass* pass = passes_.empty() ? nullptr : passes_.back();
  count_pass(run, pass);
  const TimeSplit::Running timed(run.entry.time_split);
  StepEngine& engine = *run.fit.engine;
  StepCore& core = engine.core();
  core.place = {.epoch = run.progress.epoch, .batch_idx = pass != nullptr ? pass->index() : 0};
  core.looked_at_leaves = true;    // a loop may train what it has made itself
  if (!engine.window_is_open()) {  // a checkpoint holds its gradients
    engine.open_window(1, core.place.batch_idx);
    core.window.seen = 1;
    accumulates_ = true;
  }
  (void)core.verdict->add(loss);
  // Backward uses the types of the forward pass.
  const Autocast plain(run.strategy->placement().device().type(), std::nullopt, {.enabled = false});
  run_backward(core, loss, syncs_);
  for (Gradients& each : gradients_) each.has_backward = true;
  is_unreduced_ = !syncs_;
}

std::shared_ptr<void> FabricRun::no_backward_sync() {
  return set_in_scope(syncs_, false);
}

void FabricRun::drop_gradients(Run& run) {
  is_unreduced_ = false;
  if (std::exchange(accumulates_, false)) run.fit.engine->drop_window();
}

void FabricRun::clip_gradients(size_t optimizer, const ClipGradients& clip) {
  if (clip.clip_val.has_value() == clip.max_norm.has_value()) {
    throw ConfigError("exactly one of clip_val and max_norm must be set.");
  }
  Run& run = begin();
  check_no_open_step(run);
  check_gradients(run, optimizer);
  LightningOptimizer& wrapped = run.fit.optimizers()[optimizer];
  wrapped.unscale_gradients();
  const ClipAlgorithm algorithm = clip.max_norm ? ClipAlgorithm::norm : ClipAlgorithm::value;
  modules_->clip_gradients(wrapped, clip.max_norm ? *clip.max_norm : *clip.clip_val, algorithm);
}

void FabricRun::step_optimizer(size_t optimizer, const Optimizer::Closure& closure) {
  check_outside_step();
  Run& run = begin();
  check_manual(run);
  if (!closure) {
    check_gradients(run, optimizer);
    warn_of_gradients(optimizer);
  }
  use_loop(run, Loop::manual);
  const TimeSplit::Running timed(run.entry.time_split);
  run.fit.optimizers()[optimizer].step(closure);
  move_scale_of_batch(run.fit.engine->core());
  note_used(optimizer);
  drop_gradients(run);
  ++run.progress.windows;
  between_batches(run);
}

void FabricRun::zero_grad(size_t optimizer) {
  check_outside_step();
  Run& run = begin();
  check_no_open_step(run);
  run.fit.optimizers()[optimizer].zero_grad();
  gradients_[optimizer] = {};
  drop_gradients(run);
}

void FabricRun::save(const std::string& path, const State& user) {
  check_outside_step();
  if (path.empty()) throw CheckpointError("the path is empty. Give the name of the file.");
  Run& run = begin();
  run.drain_logs();
  for (const auto& logger : run.loggers) logger->save();  // a loop that is killed later has the rows up to here
  const auto saving = set_in_scope(user_, &user);
  trainer_->save_checkpoint(path);
}

void FabricRun::add_to_checkpoint(State& checkpoint) const {
  State own = sources_state(RunAccess::of(*trainer_), sources_);
  own.set("accumulates", accumulates_);
  own.set<std::string>("loop", !loop_ ? "" : *loop_ == Loop::steps ? "steps" : "manual");
  own.set("resized", std::vector<std::string>(resized_.begin(), resized_.end()));
  checkpoint.put("fabric", own);
  if (user_ != nullptr) checkpoint.put("user", *user_);
}

State FabricRun::load(const std::string& path) {
  check_outside_step();
  if (!passes_.empty()) throw Error("a pass over a loader is open. Load the checkpoint before the loop.");
  const bool was_half_loaded = std::exchange(is_half_loaded_, false);  // another file may replace what is loaded
  Run& run = begin();
  is_half_loaded_ = was_half_loaded;
  const State checkpoint = load_checkpoint(path);
  if (trainer_->is_global_zero()) {  // of a loop that was killed while it saved
    const std::string folder = std::filesystem::path(absolute_path(path)).parent_path().string();
    remove_leftovers(folder);
    remove_abandoned_shards(folder);
  }
  check_checkpoint(run, checkpoint, path);
  const State own = checkpoint.part("fabric");
  Sharding& sharding = run.strategy->sharding();
  run.entry.ckpt_path = path;
  is_half_loaded_ = true;
  forget_steps(run);
  naming_checkpoint(path, [&] { resize_as_saved(run, checkpoint); });
  sharding.is_sharded() ? restore_parts(sharding, *modules_, checkpoint, path)
                        : restore_weights(*modules_, checkpoint, path);
  restore_callbacks(run, checkpoint);
  restore_training(run, checkpoint, path);
  run.fit.resumed = false;
  naming_checkpoint(path, [&] {
    restore_sources(run, sources_, own);
    accumulates_ = own.get<bool>("accumulates");
    gradients_.assign(gradients_.size(), {.has_backward = accumulates_});
    const std::string loop = own.has("loop") ? own.get<std::string>("loop") : "";  // absent: of an earlier version
    loop_ = loop.empty() ? std::nullopt : std::optional(loop == "steps" ? Loop::steps : Loop::manual);
  });
  restore_random_numbers(run);  // last, because nothing may draw from them before the loop
  is_half_loaded_ = false;
  return checkpoint.part("user");
}

void FabricRun::call(Hook hook, const std::function<void(Callback&, Trainer&, LightningModule&)>& on_callback) {
  Run& run = open();
  call_callbacks(run.entry, hook, [&](Callback& callback) { on_callback(callback, *trainer_, *modules_); });
  capture_checkpoints(run);
  run.checkpoint_writer.poll();
}

void FabricRun::finish() {
  check_outside_step();
  if (has_ended_) throw Error("the run has ended already. Call finish once.");
  has_ended_ = true;
  if (!entry_) return;
  Run& run = RunAccess::of(*trainer_);
  try {
    if (run.fit.engine != nullptr) run.fit.engine->finish_checks(/*receives_flags=*/true);
    if (run.entry.stop_reason.empty()) run.entry.stop_reason = "its loop has ended";
    report_skipped_steps(*run.precision, run.progress);
    if (loop_ == Loop::steps) warn_of_unmoved_schedulers(run);
    run.refresh_callback_metrics();  // for callback_metrics() after the end
    entry_->succeed();
  } catch (...) {
    error_ = exception_text(std::current_exception());
    end_failed();
    throw;
  }
  entry_.reset();
}

void FabricRun::end(bool failing) noexcept {
  const CallBeforeExit running;
  if (has_ended_) return;
  try {
    if (!failing) return finish();
    has_ended_ = true;
    end_failed();
  } catch (const std::exception& error) {
    Console::instance().warn("Fabric: the run has ended with an error: " + std::string(error.what()) +
                             " Call finish() to get it as an exception.");
  } catch (...) {
    Console::instance().warn("Fabric: the run has ended with an error. Call finish() to get it as an exception.");
  }
}

void FabricRun::end_failed() noexcept {
  if (!entry_) return;
  try {
    entry_->end_failed(error_.empty() ? "an exception has left the loop" : error_);
  } catch (const std::exception& error) {
    Console::instance().warn("Fabric: the end of the run could not be written: " + std::string(error.what()));
  }
  entry_.reset();
}

void FabricRun::fail_without_memory(const std::string& call, const std::exception& error) {
  if (trainer_ == nullptr) throw;
  throw OutOfMemoryError(error_ = text_for_call(call, memory_report(RunAccess::of(*trainer_), call, error)));
}

void FabricRun::rethrow_named(const std::string& call) {
  error_ = exception_text(std::current_exception());
  const Batch failed = std::exchange(failed_batch_, {});
  try {
    throw;
  } catch (const std::bad_alloc& error) {
    fail_without_memory(call, error);
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) fail_without_memory(call, error);
    const std::string text = error.what_without_backtrace();
    throw Error(error_ = text_for_call(call, text + type_remedy(text, types_text(failed))));
  } catch (const ConfigError& error) {
    throw config_error_for_call(call, error);
  } catch (const NonFiniteLossError& error) {
    throw NonFiniteLossError(error_ = text_for_call(call, error.what()));
  } catch (const CheckpointError& error) {
    throw CheckpointError(error_ = text_for_call(call, error.what()));
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) throw;
    if (is_out_of_memory(error)) fail_without_memory(call, error);  // of a replica
    throw Error(error_ = text_for_call(call, error.what()));
  }
}

}  // namespace levin
