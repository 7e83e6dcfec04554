// The run of a Fabric: an entry point that is open between the calls of user code. Its parts are those of a fit (Run,
// StepEngine, checkpoints); FabricRun is the loop that moves them, one call at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/process/process_exit.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/fabric_options.h"
#include "levin/trainer/loops/fabric_pass.h"
#include "levin/trainer/loops/running_entry.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/run_messages.h"

namespace levin {

class FabricRun;

/// The modules that were set up, as submodules of the module that the run trains.
class FabricModules final : public LightningModule {
 public:
  explicit FabricModules(FabricRun& run) : run_(run) {}
  /// Calls the closure of the running Fabric::step.
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override;
  void on_save_checkpoint(State& checkpoint) override;
  /// For a replica. Throws ConfigError for a module without clone().
  [[nodiscard]] std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;

 private:
  FabricRun& run_;
};

/// The functions of Fabric, without the names of the calls in errors (named_call). Every rank calls them.
class FabricRun {
 public:
  explicit FabricRun(FabricOptions options);
  ~FabricRun();
  FabricRun(const FabricRun&) = delete;
  FabricRun& operator=(const FabricRun&) = delete;

  void launch();
  /// Returns the run with its ranks, loggers and callbacks; starts it if that was not done. Throws Error after the end,
  /// and without launch() if there are several ranks.
  Run& open();
  /// Returns the run for a function that only reads, which may also be called after the end.
  Run& read();
  /// Returns the run, ready to compute steps: the strategy has the modules, and the engine the optimizers.
  Run& begin();

  /// Returns the index of the module's first optimizer; unset if there is none.
  std::optional<size_t> setup(const std::shared_ptr<torch::nn::Module>& module, const OptimizerConfig& config,
                              const std::string& name);
  std::shared_ptr<FabricSource> setup_loader(const Loaders& loader, const FabricLoaderOptions& options);
  std::shared_ptr<OpenPass> begin_pass(const std::shared_ptr<FabricSource>& source, int64_t epoch);
  [[nodiscard]] const OptimizerConfig& optimizers() const { return config_; }
  /// Returns the index of the one optimizer with which the module was set up. Throws Error if there is none or several.
  [[nodiscard]] size_t optimizer_of(const torch::nn::Module& module) const;

  at::Tensor step(const Batch& batch, const Fabric::ReplicaClosure& closure);
  /// Throws if step() computes on replicas, and its closure does not get one.
  void check_no_replicas();
  /// Throws unless exactly one module was set up, which a closure can get.
  void check_one_module() const;
  at::Tensor step(const Batch& batch);
  void end_epoch();
  Metrics evaluate(const Batch& batch);
  at::Tensor predict(const Batch& batch);

  std::shared_ptr<void> enter_forward();
  void backward(const at::Tensor& loss);
  std::shared_ptr<void> no_backward_sync();
  void clip_gradients(size_t optimizer, const ClipGradients& clip);
  void step_optimizer(size_t optimizer, const Optimizer::Closure& closure);
  void zero_grad(size_t optimizer);
  void select_rows(size_t optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows, int64_t kept);

  void save(const std::string& path, const State& user);
  State load(const std::string& path);

  void log(const Metrics& metrics, std::optional<int64_t> step);

  /// Calls one hook of all callbacks, and writes the checkpoints that they request.
  void call(Hook hook, const std::function<void(Callback&, Trainer&, LightningModule&)>& on_callback);
  [[nodiscard]] Trainer& trainer() { return *trainer_; }

  /// Ends the run as succeeded.
  void finish();
  /// Ends the run in a destructor.
  void end(bool failing) noexcept;
  /// Rethrows the exception that is being handled, if it is Levin's or LibTorch's, with the call in front of its text.
  [[noreturn]] void rethrow_named(const std::string& call);
  [[noreturn]] void fail_without_memory(const std::string& call, const std::exception& error);

 private:
  friend class FabricModules;
  /// Whether the loop calls step(), or backward() and the optimizers' steps.
  enum class Loop { steps, manual };

  void start();
  void use_loop(Run& run, Loop loop);
  /// Undoes use_loop() once the losses of all steps are known; the kind of the loop stays.
  void end_engine(Run& run);
  void check_new_module(const torch::nn::Module& module, const OptimizerConfig& config, const std::string& name) const;
  void check_step(const Run& run) const;
  /// Throws inside the closure of step(), which the engine runs in the middle of its batch.
  void check_outside_step() const;
  /// Returns the open pass whose batch this is, or else the only one that is open; null if none is. Throws Error if
  /// several are open, and the batch is of none of them.
  [[nodiscard]] OpenPass* pass_of(const Batch& batch) const;
  /// Throws CheckpointError if the checkpoint is not of this set-up, before anything is changed.
  void check_checkpoint(Run& run, const State& checkpoint, const std::string& path) const;
  /// Throws CheckpointError if a callback has a state since the steps of this run, and the checkpoint has none.
  static void check_callbacks(const Run& run, const State& checkpoint, const std::string& path);
  /// Drops what the steps of this process have left: gradients, recordings, an open window, late checks.
  void forget_steps(Run& run);
  /// Throws if step() has accumulated gradients that no optimizer step has used.
  void check_no_open_step(const Run& run) const;
  /// Throws if it has, if an option applies to step() alone, or if there are replicas.
  void check_manual(const Run& run) const;
  /// Returns the LightningModules that were set up.
  [[nodiscard]] std::vector<LightningModule*> lightning_modules() const;
  /// Returns the module whose steps are called. Throws Error unless exactly one LightningModule was set up.
  [[nodiscard]] LightningModule& lightning_module() const;
  /// Calls `step` with the LightningModule as a step of an evaluation.
  void evaluate_batch(Run& run, Phase phase, Hook hook, const Batch& batch,
                      const std::function<void(LightningModule&)>& step);
  /// Throws if the ranks have prepared the forward pass for a different backward pass than this one.
  void check_forward() const;
  /// Throws unless the optimizer may use its gradients: backward() has computed and reduced them.
  void check_gradients(const Run& run, size_t optimizer) const;
  /// Returns what to do about a tensor of the wrong type in the batch that failed, or in a loss.
  [[nodiscard]] std::string types_text(const Batch& failed) const;
  /// Throws or warns if backward() is about to add to gradients that an optimizer step has used.
  void check_used_gradients();
  /// Warns of an optimizer step that has no gradients, or has used its gradients before.
  void warn_of_gradients(size_t optimizer);
  /// Remembers that an optimizer step has used its present gradients.
  void note_used(size_t optimizer);
  at::Tensor train_batch(Run& run, const Batch& batch, OpenPass* pass);
  void close_window(Run& run, int64_t steps_before);
  /// Makes a pass the running epoch, once it trains. `pass`: null: none is open.
  static void count_pass(Run& run, OpenPass* pass);
  /// Does what follows the last Fabric::step of an epoch: the update of an open window, and the schedulers of epochs.
  void finish_steps(Run& run);
  /// Moves the schedulers that watch one of these metrics.
  static void move_plateau_schedulers(Run& run, const Metrics& metrics);
  /// Warns of schedulers that watch a metric and were never moved.
  static void warn_of_unmoved_schedulers(const Run& run);
  /// Makes `epoch` the epoch to begin with, once the losses of all steps are known.
  static void start_epoch(Run& run, int64_t epoch);
  /// Does what follows the last batch of a pass that trained.
  void finish_pass(OpenPass& pass);
  /// Does what follows a pass.
  void leave_pass(OpenPass& pass);
  /// Forgets that gradients of backward() are accumulated.
  void drop_gradients(Run& run);
  /// Throws what select_rows() refuses on this rank.
  void check_selection(const Run& run, size_t optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows,
                       int64_t kept) const;
  /// Calls `change`, which changes sizes of parameters, and has made anew what was made for the old ones.
  void resize(Run& run, const std::function<void()>& change);
  /// Throws Error if the run has parts or copies of parameters, whose number of rows cannot change.
  static void check_resizable(const Run& run);
  /// Returns the names of the parameters whose rows were selected, here or in the saved run.
  [[nodiscard]] std::set<std::string> names_as_saved(const State& checkpoint) const;
  /// Returns the module's weights and buffers, with the file's tensors where rows were selected.
  [[nodiscard]] State weights_as_saved(const State& checkpoint) const;
  /// Returns the parameters whose number of rows differs from weights_as_saved(), each with its tensor there.
  [[nodiscard]] std::vector<std::pair<at::Tensor, at::Tensor>> changed_rows(const State& weights) const;
  /// Gives these parameters their sizes in the file.
  void resize_as_saved(Run& run, const State& checkpoint);
  void between_batches(Run& run);
  void add_to_checkpoint(State& checkpoint) const;
  void end_failed() noexcept;

  // A module that was set up, with this many optimizers from the first on.
  struct SetUp {
    const torch::nn::Module* module;
    size_t first;
    size_t count;
  };

  // What is known of an optimizer's gradients in a loop with backward().
  struct Gradients {
    bool has_backward = false;   // backward() was called since zero_grad()
    bool adds_to_used = false;   // and has added to gradients that an optimizer step has used
    const void* used = nullptr;  // the first gradient that an optimizer step has used, and its version then
    int64_t used_version = 0;
  };
  [[nodiscard]] bool has_used(size_t optimizer) const;

  TrainerOptions options_;
  bool needs_launch_ = false;               // there are several ranks
  std::shared_ptr<FabricModules> modules_;  // outlives the trainer
  std::unique_ptr<Trainer> trainer_;        // null: not started
  std::optional<RunningEntry> entry_;       // unset: not started, or ended
  OptimizerConfig config_ = {};             // of all modules
  std::vector<SetUp> set_up_ = {};
  std::vector<Gradients> gradients_ = {};  // by optimizer
  std::vector<std::shared_ptr<FabricSource>> sources_ = {};
  std::vector<OpenPass*> passes_ = {};               // inner ones last
  const Fabric::ReplicaClosure* closure_ = nullptr;  // of the running step
  Batch failed_batch_ = {};                          // of a step that has thrown, until the error has its text
  bool warned_of_gradients_ = false;
  const State* user_ = nullptr;                       // while a checkpoint is saved by save()
  bool syncs_ = true;                                 // backward reduces gradients over ranks
  std::optional<bool> forward_syncs_ = std::nullopt;  // of the latest forward pass, with several ranks; unset: none
  bool is_unreduced_ = false;                         // gradients wait for a backward pass that reduces them
  std::optional<Loop> loop_ = std::nullopt;           // unset: nothing was trained
  std::optional<Loop> begun_ = std::nullopt;          // the kind for which the engine has begun
  std::set<std::string> resized_ = {};                // parameters whose rows were selected
  bool accumulates_ = false;                          // the engine's window has gradients of backward(), not of step()
  bool is_half_loaded_ = false;                       // load() has failed after it has changed something
  bool has_ended_ = false;
  std::string error_ = "";  // the last one
};

/// Assigns to `value`; the returned scope undoes that.
template <class T>
[[nodiscard]] std::shared_ptr<void> set_in_scope(T& value, T in_scope) {
  return {nullptr, [&value, before = std::exchange(value, in_scope)](void*) { value = before; }};
}

/// Calls `action`; see FabricRun::rethrow_named. Its warnings name the call too. The exit of the process waits for it.
template <class Action>
auto named_call(FabricRun& run, const std::string& call, const Action& action) -> decltype(action()) {
  const CallBeforeExit running;
  const GuestMessages messages(call, &text_for_call);
  try {
    return action();
  } catch (...) {
    run.rethrow_named(call);
  }
}

}  // namespace levin
