// What a levin_run stands for: a model made from a run file, trained by a Fabric on a thread of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/c/worker.h"
#include "levin/cli/config/merge.h"
#include "levin/cli/config/run_parts.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/trainer_options.h"

namespace levin::c {

/// Returns the options of a Fabric that trains as a Trainer with these options does. Options of the Trainer's own loop
/// (its length, validation, output, checkpoints) have no effect. Throws ConfigError naming all others that a Fabric
/// does not have and that are not at their defaults.
[[nodiscard]] FabricOptions fabric_options(const TrainerOptions& options);

/// A run that is used by calls from outside. Thread-safe.
class GuestRun {
 public:
  /// `base`: the run file. `arguments`: as after `levin fit`. Throws ConfigError naming all mistakes, and Error for a
  /// model that cannot be made.
  GuestRun(const ConfigSource& base, const std::vector<std::string>& arguments);
  ~GuestRun();
  GuestRun(const GuestRun&) = delete;
  GuestRun& operator=(const GuestRun&) = delete;

  /// Calls `action` with the run's Fabric on the run's thread, and returns what it returns.
  template <class Action>
  auto with_fabric(const Action& action) -> decltype(action(std::declval<Fabric&>())) {
    decltype(action(std::declval<Fabric&>())) result{};
    worker_.run([&] { result = action(*fabric_); });
    return result;
  }

  /// Trains on the batch. Returns the loss of Fabric::step; nan if there is none. `reads_loss`: false: returns 0
  /// without waiting for the device.
  double step(const Batch& batch, bool reads_loss);
  void evaluate(const Batch& batch);
  /// Returns the prediction on the CPU; it shares no memory with the batch.
  [[nodiscard]] at::Tensor predict(const Batch& batch);
  void end_epoch();
  /// Throws InvalidArgument, with the hooks that exist, for a hook that does not exist or has arguments.
  void call(const std::string& hook);
  [[nodiscard]] bool should_stop();
  void log(const std::string& name, double value);
  /// Throws InvalidArgument with the names that exist.
  [[nodiscard]] double metric(const std::string& name);

  /// Returns the names of parameters, then of buffers.
  [[nodiscard]] const std::vector<std::string>& weight_names() const { return names_; }
  /// Returns a copy on the CPU. Throws InvalidArgument for a name that does not exist, and Error for sharded weights.
  [[nodiscard]] at::Tensor weight(const std::string& name);
  /// Throws InvalidArgument also for a tensor of a different shape.
  void set_weight(const std::string& name, const at::Tensor& value);

  void save(const std::string& path);
  void load(const std::string& path);
  /// Afterwards weights, metrics and counters can be used; all other functions throw InvalidArgument.
  void finish();

  /// Throws Error where the run can be neither used nor destroyed: in a child process, and in code of the run itself.
  void check_caller() const { worker_.check_caller(); }

 private:
  void create(const ConfigSource& base, const std::vector<std::string>& arguments);
  void check_has_not_ended() const;
  [[nodiscard]] at::Tensor find_weight(const std::string& name) const;

  RunParts parts_ = {};  // outlives the Fabric
  std::unique_ptr<Fabric> fabric_ = nullptr;
  std::vector<std::string> names_ = {};
  bool is_sharded_ = false;
  bool has_optimizer_ = false;
  bool has_ended_ = false;
  Worker worker_ = {};
};

}  // namespace levin::c
