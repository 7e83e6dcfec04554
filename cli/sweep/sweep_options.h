// The file that "levin sweep" reads.
//
//   run: run.yaml
//   metric: val_loss
//   max_trials: 40
//   search: {method: asha, max_resource: 27}
//   space:
//     optimizer.lr: {log_uniform: [1e-4, 1e-1]}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/cli/config/merge.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/core/options/value.h"

namespace levin {

// --- The values that a sweep tries for one key of a run file: a choice of values, or a range of numbers.
//
//   space:
//     model.hidden: {choice: [64, 128, 256]}
//     optimizer.lr: {log_uniform: [1e-4, 1e-1]}
//     model.layers: {int: [1, 8], step: 1, log: false}

/// The values that a sweep tries for one key.
struct Range {
  enum class Kind { choice, uniform, log_uniform, integer };

  std::string path = "";  // "optimizer.lr": what follows -- on the command line
  Kind kind = Kind::choice;
  std::vector<std::string> choices = {};  // as on the command line
  double low = 0, high = 0;               // both included, for integers too
  int64_t step = 1;                       // of integers
  bool log = false;                       // of integers: drawn evenly in their logarithm
  Mark mark = {};

  /// The value at `u` in [0, 1): the same probability mass for equal parts of it.
  [[nodiscard]] std::string value_at(double u) const;

  /// Every value, in order; none for uniform and log_uniform, which have no end of them.
  [[nodiscard]] std::vector<std::string> all_values() const;

  /// What to check before a sweep starts: every choice, or both ends.
  [[nodiscard]] std::vector<std::string> values_to_check() const;

  /// Whether `value`, as on the command line, belongs to the range.
  [[nodiscard]] bool contains(const std::string& value) const;

  /// "log_uniform [0.0001, 0.1]"
  [[nodiscard]] std::string str() const;
};

using Space = std::vector<Range>;

/// Reads the map below `space`; what is wrong becomes a problem.
[[nodiscard]] Space read_space(const ConfigNode& node, Problems& problems);

/// A value of a run file as one argument after "--PATH=": read_yaml_value reads it back.
[[nodiscard]] std::string override_text(const ConfigNode& value);

/// The number of keys that a Sobol sequence can have: direction numbers are tabulated for this many dimensions.
inline constexpr int kSobolDimensions = 21;

enum class SearchMethod { grid, random, sobol, asha, hyperband, ask };
enum class SweepMode { min, max };
enum class Resource { epochs, steps };
enum class RankBy { last, best };

template <>
struct EnumNames<SearchMethod> {
  static constexpr EnumName<SearchMethod> names[] = {
      {"grid", SearchMethod::grid}, {"random", SearchMethod::random},       {"sobol", SearchMethod::sobol},
      {"asha", SearchMethod::asha}, {"hyperband", SearchMethod::hyperband}, {"ask", SearchMethod::ask}};
};
template <>
struct EnumNames<SweepMode> {
  static constexpr EnumName<SweepMode> names[] = {{"min", SweepMode::min}, {"max", SweepMode::max}};
};
template <>
struct EnumNames<Resource> {
  static constexpr EnumName<Resource> names[] = {{"epochs", Resource::epochs}, {"steps", Resource::steps}};
};

template <>
struct EnumNames<RankBy> {
  static constexpr EnumName<RankBy> names[] = {{"last", RankBy::last}, {"best", RankBy::best}};
};

/// How a sweep searches: the method, and the rungs of asha and hyperband.
struct SearchOptions {
  SearchMethod method = SearchMethod::random;
  Resource resource = Resource::epochs;
  int64_t min_resource = 1;
  int64_t reduction_factor = 3;
  std::optional<int64_t> max_resource = std::nullopt;

  /// Whether trials are stopped early.
  [[nodiscard]] bool has_rungs() const { return method == SearchMethod::asha || method == SearchMethod::hyperband; }

  template <class = void>
  static auto fields() {
    using O = SearchOptions;
    return levin::fields(
        field("method", &O::method, "grid, random, sobol, asha, hyperband, or ask: trials come from outside"),
        field("resource", &O::resource, "asha and hyperband: what rungs count, epochs or steps"),
        field("min_resource", &O::min_resource, "asha and hyperband: what every trial gets").min(1),
        field("reduction_factor", &O::reduction_factor, "asha and hyperband: one in this many trials continues").min(2),
        field("max_resource", &O::max_resource,
              "asha and hyperband: what the best trials get; null: trainer.max_epochs or max_steps"));
  }
};

/// The keys of a sweep file.
struct SweepOptions {
  ConfigNode run = {};  // a file's name, or a map
  std::string folder = "";
  std::string metric = "";
  SweepMode mode = SweepMode::min;
  RankBy rank_by = RankBy::last;
  std::optional<int64_t> max_trials = std::nullopt;
  std::optional<Seconds> max_time = std::nullopt;
  std::optional<Seconds> max_trial_time = std::nullopt;
  int64_t slots = 1;
  int64_t cores_per_slot = 0;
  int64_t gpus_per_slot = 0;
  int64_t max_retries = 1;
  int64_t max_failures = 5;
  int64_t seed = 0;
  SearchOptions search = {};
  ConfigNode space = {};

  template <class = void>
  static auto fields() {
    using O = SweepOptions;
    return levin::fields(
        field("run", &O::run, "the run file, relative to this one's folder, or its contents as a map"),
        field("folder", &O::folder, "where the sweep keeps its files; empty: the sweep file's name"),
        field("metric", &O::metric, "logged metric that ranks the trials").not_empty(),
        field("mode", &O::mode, "min or max: which value of the metric is best"),
        field("rank_by", &O::rank_by,
              "which value of the metric ranks a trial: last, the one at its end; or best, whose weights a "
              "ModelCheckpoint of the run has saved"),
        field("max_trials", &O::max_trials, "trials in total; null: all points of a grid, all brackets of hyperband"),
        field("max_time", &O::max_time, "no trial begins after this time; null: no limit"),
        field("max_trial_time", &O::max_trial_time,
              "a trial that has run this long is stopped at a checkpoint, and its value counts; null: no limit")
            .check([](const std::optional<Seconds>& time) { return !time || time->count() > 0; }, "> 0"),
        field("slots", &O::slots, "trials that run at the same time").min(1).max(1024),
        field("cores_per_slot", &O::cores_per_slot, "cores of each trial; 0: the usable ones divided by the slots")
            .min(0),
        field("gpus_per_slot", &O::gpus_per_slot, "GPUs of each trial").min(0),
        field("max_retries", &O::max_retries, "how often a trial that failed starts again").min(0),
        field("max_failures", &O::max_failures, "the sweep ends after this many failed trials in a row").min(1),
        field("seed", &O::seed, "seed of the search").min(0), field("search", &O::search, "the method and its options"),
        field("space", &O::space, "keys of the run file and their ranges"));
  }
};

/// A sweep file after all checks that need no run.
struct SweepFile {
  SweepOptions options = {};
  Space space = {};
  std::string name = "";  // the file's, without its ending
};

/// Reads the file, applies `changes` to its keys, and checks all that concerns it alone; everything wrong becomes a
/// problem.
[[nodiscard]] SweepFile read_sweep_file(const std::string& path, const std::vector<Override>& changes,
                                        Problems& problems);

/// The same from its text.
[[nodiscard]] SweepFile read_sweep_text(const std::string& text, const std::string& name, Problems& problems);

}  // namespace levin
