// Levin's engine for a training loop of your own: precision, devices and ranks, loss scaling, accumulation, clipping,
// checkpoints and loggers, without Trainer::fit. The names are Lightning Fabric's.
//
//   levin::Fabric fabric({.precision = "bf16-mixed"});
//   Net net;                                                    // any torch::nn::Module
//   auto optimizer = fabric.setup(net, levin::AdamW(net.parameters(), {.lr = 1e-3}));
//   auto loader = fabric.setup_dataloaders(levin::DataLoader(data, {.batch_size = 64, .shuffle = true}));
//   for (int64_t epoch = fabric.current_epoch(); epoch < 3; ++epoch) {
//     for (const levin::Batch& batch : loader.epoch(epoch)) {
//       optimizer.zero_grad();
//       const at::Tensor loss = [&] {
//         const auto autocast = fabric.autocast();
//         return torch::cross_entropy_loss(net.forward(batch[0]), batch[1]);
//       }();
//       fabric.backward(loss);
//       optimizer.step();
//     }
//     fabric.save("last.ckpt");
//   }
//
// Fabric::step replaces the body of the inner loop, and ends with the Trainer's weights, bitwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/optimizer_config.h"
#include "levin/trainer/trainer_options.h"

namespace torch::nn {
class Module;
}

namespace levin {

class FabricRun;
class OpenPass;
struct FabricSource;

/// The options of a Fabric. The first ones are Lightning Fabric's; the options from accumulate_grad_batches on are the
/// Trainer's. Options about the update (accumulation, clipping, nonfinite_loss: skip or rollback) apply to Fabric::step
/// alone, and Fabric::backward refuses them.
struct FabricOptions {
  std::string accelerator = "auto";
  Component<Strategy> strategy = "auto";
  std::variant<int64_t, std::string, std::vector<int64_t>, std::vector<std::string>> devices = "auto";
  int64_t num_nodes = 1;
  Component<Precision> precision = "32-true";
  Callbacks callbacks = {};
  ComponentList<Logger> loggers = {};
  int64_t accumulate_grad_batches = 1;
  std::optional<double> gradient_clip_val = std::nullopt;
  EnumOption<ClipAlgorithm> gradient_clip_algorithm = ClipAlgorithm::norm;
  EnumOption<NonFiniteLoss> nonfinite_loss = NonFiniteLoss::stop;
  std::variant<bool, std::string> record_steps = false;
  std::variant<bool, std::string> deterministic = false;
  std::optional<int64_t> num_threads = std::nullopt;
  bool oversubscribe = false;
  std::string default_root_dir = "";

  template <class = void>
  static auto fields() {
    using O = FabricOptions;
    return levin::fields(
        field("accelerator", &O::accelerator, "cpu, gpu (or cuda), auto, or another backend of LibTorch by name"),
        field("strategy", &O::strategy,
              "how devices work together: auto, single_device, ddp, fsdp, dp, dp_balanced or ModelParallel"),
        field("devices", &O::devices, "auto, a number of devices (-1: all GPUs), or the GPUs' indices"),
        field("num_nodes", &O::num_nodes, "number of machines").min(1),
        field("precision", &O::precision,
              "number format: 32-true, 64-true, bf16-true, 16-true, bf16-mixed, 16-mixed, or MixedPrecision"),
        field("callbacks", &O::callbacks, "objects whose hooks Fabric::call calls"),
        field("loggers", &O::loggers, "where Fabric::log writes; empty: nowhere"),
        field("accumulate_grad_batches", &O::accumulate_grad_batches, "calls of Fabric::step per optimizer step")
            .min(1),
        field("gradient_clip_val", &O::gradient_clip_val,
              "maximum gradient norm (or value) in Fabric::step; 0 or unset: no clipping")
            .check([](const std::optional<double>& v) { return !v || *v >= 0; }, ">= 0"),
        field("gradient_clip_algorithm", &O::gradient_clip_algorithm, "clip the norm of all gradients, or each value"),
        field("nonfinite_loss", &O::nonfinite_loss,
              "what happens when a loss or a gradient is nan or inf: stop, skip, rollback or ignore"),
        field("record_steps", &O::record_steps, "record Fabric::step once and replay it; auto: where that is faster")
            .check(bool_or("auto"), "true, false or auto"),
        field("deterministic", &O::deterministic,
              "use deterministic algorithms in this process until the Fabric ends; warn: where they exist")
            .check(bool_or("warn"), "true, false or warn"),
        field("num_threads", &O::num_threads,
              "threads of operators called on this thread, until the Fabric ends; unset: unchanged")
            .check([](const std::optional<int64_t>& v) { return !v || *v >= 1; }, ">= 1"),
        field("oversubscribe", &O::oversubscribe, "allow more ranks on this machine than it has cores"),
        field("default_root_dir", &O::default_root_dir,
              "folder of the loggers' folders, or s3://bucket/folder; empty: the current folder"));
  }
};

/// How Fabric::clip_gradients clips: exactly one of the values is set.
struct ClipGradients {
  std::optional<double> clip_val = std::nullopt;  // each element's absolute value
  std::optional<double> max_norm = std::nullopt;  // the norm of all gradients
};

/// How a loader is set up.
struct FabricLoaderOptions {
  bool use_distributed_sampler = true;  // each rank gets its share of the samples
  bool padded = true;                   // all ranks get the same number of batches; false: every sample counts once
  bool move_to_device = true;           // false: batches stay as the loader gives them
};

/// An optimizer that was set up: a handle, valid as long as its Fabric. Every rank calls its functions.
class FabricOptimizer {
 public:
  FabricOptimizer(FabricRun& run, std::optional<size_t> index, std::string name)
      : run_(&run), index_(index), name_(std::move(name)) {}

  /// Updates the weights with the gradients of Fabric::backward, unscaled; skips the update if a scaled gradient
  /// overflowed, and moves the loss scale. `closure`: for an optimizer that evaluates the loss several times (LBFGS).
  /// Warns, once, of gradients that were used before or are missing. Throws NonFiniteLossError for a gradient that is
  /// nan or inf, and Error inside a window of Fabric::step, for gradients of a backward pass inside no_backward_sync(),
  /// and, with several ranks or a scaled loss, for gradients that Fabric::backward has not computed.
  void step(const Optimizer::Closure& closure = {});
  /// Drops the gradients of the optimizer's parameters.
  void zero_grad();
  /// Changes the number of rows of `params` between two optimizer steps: see levin::select_rows. Recordings of steps
  /// are made again, and checkpoints restore the sizes. nonfinite_loss: rollback goes back to checkpoints that are
  /// saved afterwards. Every rank selects the same rows. Throws Error, changing nothing, on every rank, while gradients
  /// wait for an optimizer step, with fsdp and with dp on several devices, with a callback that averages the weights,
  /// for a tensor of two optimizers, for different rows on ranks, and as levin::select_rows.
  void select_rows(const std::vector<at::Tensor>& params, const at::Tensor& rows, int64_t kept);
  /// Returns the optimizer, whose groups have the learning rates. Throws Error if setup() got no optimizer.
  [[nodiscard]] Optimizer& optimizer() const;

 private:
  friend class Fabric;
  [[nodiscard]] size_t index() const;

  FabricRun* run_;
  std::optional<size_t> index_;  // unset: setup() got none
  std::string name_;             // of the module
};

/// One pass over a loader: the range of a for statement, which must not outlive its Fabric.
class FabricPass {
 public:
  class Iterator {
   public:
    Iterator(FabricRun& run, OpenPass& pass) : run_(&run), pass_(&pass) { ++*this; }
    [[nodiscard]] const Batch& operator*() const;
    Iterator& operator++();
    [[nodiscard]] bool operator==(std::default_sentinel_t) const { return pass_ == nullptr; }

   private:
    FabricRun* run_;
    OpenPass* pass_;  // null: the pass is over
  };

  FabricPass(FabricRun& run, std::shared_ptr<OpenPass> pass) : run_(&run), pass_(std::move(pass)) {}
  /// Fetches the first batch. Called once.
  [[nodiscard]] Iterator begin() { return {*run_, *pass_}; }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  FabricRun* run_;
  std::shared_ptr<OpenPass> pass_;
};

/// A loader that was set up: a handle, valid as long as its Fabric.
class FabricLoader {
 public:
  FabricLoader(FabricRun& run, std::shared_ptr<FabricSource> source) : run_(&run), source_(std::move(source)) {}

  /// Begins a pass; after Fabric::load of a checkpoint from inside a pass of this epoch it continues there. Throws
  /// Error for a different epoch then, and while another pass of this loader is open. Every rank calls it.
  [[nodiscard]] FabricPass epoch(int64_t epoch);
  /// Returns the number of batches of a pass on this rank; unset if the loader does not know.
  [[nodiscard]] std::optional<int64_t> num_batches() const;

 private:
  FabricRun* run_;
  std::shared_ptr<FabricSource> source_;
};

/// A run whose loop is the user's. It does not take over the process: it installs no signal handlers, draws no random
/// numbers (with several ranks, ranks other than 0 are seeded anew before the first step), and changes settings of
/// LibTorch only where an option says so, until it is destroyed. It calls hooks of callbacks only by call(), except
/// the hooks around backward and the optimizer step (on_before_zero_grad, on_before_backward, on_after_backward,
/// on_before_optimizer_step) and the hooks around a checkpoint. Used on one thread. Errors begin with the call:
/// "Fabric.step: …". Exceptions of user code in a step propagate unchanged.
class Fabric {
 public:
  /// Computes the loss of a batch, () with a graph; an undefined tensor skips the batch.
  using StepClosure = std::function<at::Tensor(const Batch&)>;
  /// The same with the module that was set up, or a replica of it on another device.
  using ReplicaClosure = std::function<at::Tensor(torch::nn::Module&, const Batch&)>;

  explicit Fabric(Defaults = {}) : Fabric(FabricOptions()) {}
  /// Throws ConfigError naming every option that is not possible. Starts nothing.
  explicit Fabric(FabricOptions options);
  /// Ends the run like finish(), or as failed while an exception propagates. Errors become warnings.
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// Starts the ranks, or joins them if a launcher has started them; the process that started them then ends here when
  /// they have. Called first, once, if there are several ranks; otherwise optional. Throws Error for a second call.
  void launch();

  // ---- what is trained --------------------------------------------------------------------------------------------
  /// Gives the module to the run: converts it to the precision's type, moves it to the device, and returns the handle
  /// of its first optimizer. `name`: the prefix of its weights in checkpoints. All modules are set up before the first
  /// step. A module given by reference outlives the Fabric. Throws Error for a module or a name that was given before,
  /// and ConfigError for an optimizer of parameters that no module that was set up has.
  FabricOptimizer setup(torch::nn::Module& module, const OptimizerConfig& optimizers = {},
                        const std::string& name = "model");
  FabricOptimizer setup(std::shared_ptr<torch::nn::Module> module, const OptimizerConfig& optimizers = {},
                        const std::string& name = "model");
  /// Same as above with a holder such as torch::nn::Linear.
  template <class Holder>
  requires requires(const Holder& holder) { holder.ptr(); }
  FabricOptimizer setup(const Holder& holder, const OptimizerConfig& optimizers = {},
                        const std::string& name = "model") {
    return setup(std::shared_ptr<torch::nn::Module>(holder.ptr()), optimizers, name);
  }
  /// Gives a loader to the run. Throws Error unless there is exactly one in `loader`, and after load() while a pass
  /// over another loader is to be continued.
  [[nodiscard]] FabricLoader setup_dataloaders(Loaders loader, const FabricLoaderOptions& options = {});
  /// Same as above for several: auto [train, val] = fabric.setup_dataloaders(train_loader, val_loader).
  template <class... Each>
  requires(sizeof...(Each) > 1 && (std::convertible_to<Each, Loaders> && ...))
      [[nodiscard]] std::array<FabricLoader, sizeof...(Each)> setup_dataloaders(Each&&... loaders) {
    return {setup_dataloaders(Loaders(std::forward<Each>(loaders)))...};
  }
  /// Returns the handles of all optimizers, in the order in which they were set up.
  [[nodiscard]] std::vector<FabricOptimizer> optimizers();
  /// Returns the schedulers of all optimizers. In a loop with step(), it moves the schedulers that do not watch a
  /// metric, and log() the others. A loop with backward() moves all of them: lr_schedulers()[0].scheduler->step().
  [[nodiscard]] std::vector<LRSchedulerConfig>& lr_schedulers();
  /// Returns a scope in which modules are created in the precision's type; null if that is float32.
  [[nodiscard]] std::shared_ptr<void> init_module();

  // ---- a step in one call -----------------------------------------------------------------------------------------
  /// Trains on one batch as the Trainer does: `closure` under autocast, backward, and with every
  /// accumulate_grad_batches-th call clipping, the optimizer step and the schedulers of Interval::step. Returns the
  /// loss, detached and divided by the number of batches of its optimizer step. While a pass over a loader of
  /// setup_dataloaders is open, the batch counts as its latest one: the last optimizer step of a pass takes the batches
  /// that are left, and after it the schedulers of Interval::epoch are moved. A pass that is left early drops the
  /// gradients of unfinished steps. With record_steps replays do not call `closure`. An exception drops the
  /// accumulated gradients. Throws Error without exactly one optimizer, and as StepEngine::step does.
  at::Tensor step(const Batch& batch, const StepClosure& closure);
  /// Same as above with a closure that gets the module, of class M:
  ///   fabric.step<Net>(batch, [](Net& net, const levin::Batch& part) { return net.loss(part); });
  /// With `dp` it runs on a thread for each device, with a replica and its part of the batch, and the loss is the mean
  /// over samples. The one module that was set up needs clone(), as torch::nn::Cloneable has it. Throws ConfigError
  /// without it, and Error for several modules.
  template <class M, class Closure>
  requires std::is_invocable_v<const Closure&, M&, const Batch&> at::Tensor step(const Batch& batch,
                                                                                 const Closure& closure) {
    return step_on_replicas(batch,
                            [&](auto& module, const Batch& part) { return closure(dynamic_cast<M&>(module), part); });
  }

  /// Ends an epoch of a loop whose batches come from no loader of setup_dataloaders: the last optimizer step takes the
  /// batches that are left, the schedulers of Interval::epoch are moved, and current_epoch() grows by one. Every rank
  /// calls it. Throws Error inside a pass, which ends its epoch itself.
  void end_epoch();

  // ---- the steps of a LightningModule -----------------------------------------------------------------------------
  /// Same as step() above, with the training_step of the one LightningModule that was set up, which may log and set the
  /// weight of its loss. Values that it logs are in callback_metrics() until the next call; values that it logs
  /// with on_epoch are of this batch alone. Other hooks of the module are not called. Throws Error unless there is
  /// exactly one such module, with automatic optimization.
  at::Tensor step(const Batch& batch);
  /// Returns what the module's validation_step logs for one batch, in evaluation mode and without gradients; with
  /// sync_dist over all ranks. All ranks use rank 0's buffers. Every rank calls it. Throws Error unless there is
  /// exactly one LightningModule.
  Metrics evaluate(const Batch& batch);
  /// Returns what the module's predict_step returns for one batch, in evaluation mode and without gradients, with rank
  /// 0's buffers. Every rank calls it.
  [[nodiscard]] at::Tensor predict(const Batch& batch);

  // ---- the parts of a step ----------------------------------------------------------------------------------------
  /// Returns the scope of a forward pass in the precision. With several ranks every training forward pass needs one,
  /// also in float32; every rank enters it.
  [[nodiscard]] std::shared_ptr<void> autocast();
  /// Adds the gradients of `loss`, () and not scaled, and reduces them over ranks unless no_backward_sync() is open.
  /// Every rank calls it. Throws NonFiniteLossError, ConfigError for options that only step() applies, Error for
  /// gradients that step() has left and in its closure, and, with several ranks, if the forward pass had no autocast()
  /// or began on the other side of no_backward_sync()'s scope.
  void backward(const at::Tensor& loss);
  /// Returns a scope around forward and backward passes whose gradients are not reduced yet: all but the last of an
  /// accumulation. `enabled`: false for the last.
  [[nodiscard]] std::shared_ptr<void> no_backward_sync(bool enabled = true);
  /// Clips the gradients, which are unscaled first. Throws ConfigError unless exactly one value is set, and Error for
  /// gradients that optimizer.step() would refuse. Every rank calls it.
  void clip_gradients(const FabricOptimizer& optimizer, const ClipGradients& clip);
  /// Same as above for the one optimizer with which `module` was set up.
  void clip_gradients(const torch::nn::Module& module, const ClipGradients& clip);

  // ---- ranks and devices ------------------------------------------------------------------------------------------
  /// Returns the reduced value on every rank. This function and the next ones block until all ranks call them.
  [[nodiscard]] at::Tensor all_reduce(const at::Tensor& value, ReduceOp op = ReduceOp::mean);
  /// Returns every rank's tensor, rank by rank: (world_size, …).
  [[nodiscard]] at::Tensor all_gather(const at::Tensor& value);
  /// Returns rank 0's value.
  [[nodiscard]] at::Tensor broadcast(const at::Tensor& value);
  [[nodiscard]] std::string broadcast(const std::string& text);
  void barrier();
  [[nodiscard]] bool is_global_zero() { return global_rank() == 0; }
  [[nodiscard]] int64_t global_rank();
  [[nodiscard]] int64_t local_rank();
  [[nodiscard]] int64_t world_size();
  [[nodiscard]] at::Device device();
  /// Returns the batch on the device, floating-point tensors in the precision's type.
  [[nodiscard]] Batch to_device(Batch batch);
  /// Prints on rank 0.
  void print(const std::string& text);

  // ---- checkpoints ------------------------------------------------------------------------------------------------
  /// Writes everything that was set up and is needed to continue bitwise identically: weights, optimizers, schedulers,
  /// the loss scale, random numbers, positions of loaders, accumulated gradients; and `user`. A batch of an open pass
  /// counts as done, unless the loop calls step() for each batch and has not called it for this one. Returns once the
  /// file and the loggers' rows so far are on the disk. Every rank calls it. Throws CheckpointError.
  void save(const std::string& path, const State& user = {});
  /// Restores what save() has written into the same set-up, and returns `user`. After steps, too, the loop then ends
  /// with the weights of a new process that has loaded the file. Every rank calls it. Throws CheckpointError, also for
  /// loaders of other batches inside a pass, and Error while a pass is open. A file of another set-up changes nothing;
  /// after a failure halfway the run only loads another file or ends.
  State load(const std::string& path);

  // ---- progress, loggers and callbacks ----------------------------------------------------------------------------
  /// Returns the epoch of the last pass in which step() or backward() was called, plus one if it is complete: the epoch
  /// to begin or to continue with.
  [[nodiscard]] int64_t current_epoch();
  /// Returns the number of optimizer steps.
  [[nodiscard]] int64_t global_step();
  /// Writes a row to the loggers. `step`: unset: global_step(). Callbacks that monitor the name see the value. In a
  /// loop with step(), from its first step on, each value moves the schedulers that monitor the name, by rank 0's
  /// value; then every rank calls it. Throws Error for a name that is empty or reserved.
  void log(const std::string& name, double value, std::optional<int64_t> step = std::nullopt);
  /// Same as above; reads the one element of the tensor, which waits for its device. Throws Error for an undefined
  /// tensor and for several elements.
  void log(const std::string& name, const at::Tensor& value, std::optional<int64_t> step = std::nullopt);
  void log_dict(const Metrics& metrics, std::optional<int64_t> step = std::nullopt);
  /// Returns the latest values by name: of log(), of evaluate(), and of the last step of a LightningModule. Waits for
  /// their device.
  [[nodiscard]] Metrics callback_metrics();
  /// Calls the hook of this name on all callbacks. Throws Error, with the names that exist, for a name that is not a
  /// hook, or whose hook has other arguments.
  void call(const std::string& hook);
  void call(const std::string& hook, const Batch& batch, int64_t batch_idx, int64_t dataloader_idx = 0);
  void call(const std::string& hook, const at::Tensor& output, const Batch& batch, int64_t batch_idx,
            int64_t dataloader_idx = 0);
  /// Returns whether a callback has requested a stop, on any rank. Every rank calls it.
  [[nodiscard]] bool should_stop();

  /// Ends the run as succeeded: waits for checkpoints and loggers. Afterwards only global_step(), current_epoch() and
  /// callback_metrics() may be called.
  void finish();

 private:
  at::Tensor step_on_replicas(const Batch& batch, const ReplicaClosure& closure);

  std::shared_ptr<FabricRun> run_;
  int exceptions_;  // that propagated when it was made
};

}  // namespace levin
