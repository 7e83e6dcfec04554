// The top-level keys of a run file.
//
//   Problems problems;
//   RunConfig config = read_run_config(assemble_config(sources, problems), problems);
//   problems.throw_if_any();
//
// `trainer` stays a tree here: TrainerOptions::fields() reads it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/checkpoint/weights.h"
#include "levin/core/options/fields.h"
#include "levin/core/options/registry.h"
#include "levin/trainer/lr_scheduler_options.h"
#include "levin/trainer/param_groups.h"

namespace levin {

/// A learning-rate scheduler's class and how the trainer steps it.
struct LrSchedulerSpec {
  std::string class_path = "";
  ConfigNode init_args = {};
  std::optional<Interval> interval = std::nullopt;  // unset: step for CosineWithWarmup, epoch for others
  int64_t frequency = 1;
  std::optional<std::string> monitor = std::nullopt;
  bool strict = true;
  std::optional<std::string> name = std::nullopt;
  Mark mark = {};  // position of the class; not an option

  [[nodiscard]] ClassSpec spec() const { return {class_path, init_args, mark}; }

  template <class = void>
  static auto fields() {
    using O = LrSchedulerSpec;
    return levin::fields(field("class_path", &O::class_path, "the scheduler's class"),
                         field("init_args", &O::init_args, "its options"),
                         field("interval", &O::interval,
                               "what it counts: training epochs or optimizer steps; null: steps for CosineWithWarmup, "
                               "epochs for others"),
                         field("frequency", &O::frequency, "intervals between two of its steps").min(1),
                         field("monitor", &O::monitor, "logged metric that ReduceLROnPlateau watches"),
                         field("strict", &O::strict, "a monitored metric that was not logged: true fails, false warns"),
                         field("name", &O::name, "what LearningRateMonitor logs it as"));
  }
};

/// An optimizer's class, and groups of parameters with their own settings.
struct OptimizerSpec {
  std::string class_path = "";
  ConfigNode init_args = {};
  bool no_decay = false;
  std::vector<ParamGroupOptions> param_groups = {};
  Mark mark = {};  // position of the class; not an option

  [[nodiscard]] ClassSpec spec() const { return {class_path, init_args, mark}; }

  template <class = void>
  static auto fields() {
    using O = OptimizerSpec;
    return levin::fields(
        field("class_path", &O::class_path, "the optimizer's class"), field("init_args", &O::init_args, "its options"),
        field("no_decay", &O::no_decay, "no weight decay for biases and normalization layers"),
        field("param_groups", &O::param_groups,
              "parameters with their own settings: a list of {params: [PATTERN…], lr, weight_decay, momentum}"));
  }
};

/// A class given as a map with further keys besides class_path and init_args, or only by its name.
template <class Spec>
struct ClassWithMore {
  static std::string name() { return "class"; }
  static bool read(const ConfigNode& node, Spec& value, const std::string& path, Problems& problems);
  static ConfigNode write(const Spec& value);
};
template <>
struct ValueType<LrSchedulerSpec> : ClassWithMore<LrSchedulerSpec> {};
template <>
struct ValueType<OptimizerSpec> : ClassWithMore<OptimizerSpec> {};

/// A run file: the top-level keys with their types, defaults and ranges.
struct RunConfig {
  // The same default as in Lightning (true), where true may mean $PL_GLOBAL_SEED; here true is 0, because a run must
  // not depend on the environment.
  std::optional<std::variant<int64_t, bool>> seed_everything = true;
  ConfigNode trainer = {};
  std::optional<ClassSpec> model = std::nullopt;
  std::optional<ClassSpec> data = std::nullopt;
  std::optional<OptimizerSpec> optimizer = std::nullopt;
  std::optional<LrSchedulerSpec> lr_scheduler = std::nullopt;
  std::optional<WeightsOptions> weights = std::nullopt;
  std::optional<std::string> ckpt_path = std::nullopt;
  bool test_after_fit = false;
  std::vector<std::string> plugins = {};

  /// The seed to set: true is 0; nothing for false and null.
  [[nodiscard]] std::optional<int64_t> seed() const;

  template <class = void>
  static auto fields() {
    using O = RunConfig;
    return levin::fields(
        field("seed_everything", &O::seed_everything, "seed of all random numbers; true is 0, false sets none")
            .check(is_seed, "from 0 to 4294967295"),
        field("trainer", &O::trainer, "options of the Trainer"),
        field("model", &O::model, "the LightningModule to run"),
        field("data", &O::data, "the DataModule that feeds it"),
        field("optimizer", &O::optimizer, "instead of the model's configure_optimizers"),
        field("lr_scheduler", &O::lr_scheduler, "schedule of the optimizer above"),
        field("weights", &O::weights, "weights to start from without a checkpoint: path, map, strict"),
        field("ckpt_path", &O::ckpt_path, "checkpoint to start from: a file, a run's folder, \"last\" or \"best\""),
        field("test_after_fit", &O::test_after_fit, "after fit, test the best checkpoint (or the last weights)"),
        field("plugins", &O::plugins, "shared libraries to open first: they register classes and devices")
            .ranks_may_differ());
  }

 private:
  static bool is_seed(const std::optional<std::variant<int64_t, bool>>& seed);
};

/// Reads the whole run file; unknown keys, wrong types and ranges become problems.
[[nodiscard]] RunConfig read_run_config(const ConfigNode& config, Problems& problems);

}  // namespace levin
