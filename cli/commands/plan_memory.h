// levin plan memory: the memory of a run's step, and what to recompute to reduce it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/recompute/chain_cost.h"
#include "levin/recompute/chain_plan.h"

namespace levin {

// --- Changes trainer.recompute in the text of a run file, and nothing else; comments are kept.

/// `text` (of the file `path`) with trainer.recompute: {modules}, replacing an existing one; without `modules` the key
/// is removed. Throws ConfigError with what to write by hand if the layout of the file does not allow this without
/// changing the rest.
[[nodiscard]] std::string with_recompute(const std::string& text, const std::string& path,
                                         const std::vector<std::string>& modules);

/// Options of "levin plan memory".
struct PlanMemoryOptions {
  std::optional<ByteSize> budget = std::nullopt;
  std::string picture = "memory_plan.svg";
  bool apply = false;
  std::optional<int64_t> batch_size = std::nullopt;

  template <class = void>
  static auto fields() {
    using O = PlanMemoryOptions;
    return levin::fields(
        field("budget", &O::budget, "memory limit of a step, e.g. 11GiB; unset: 9/10 of the device's free memory"),
        field("picture", &O::picture, "SVG file with the memory over the step; empty: none"),
        field("apply", &O::apply, "write a copy of the last --config FILE, FILE.planned.yaml, with the best plan"),
        field("batch_size", &O::batch_size,
              "samples of the batch that the table is about; unset: the measured one. Memory grows linearly with it")
            .check([](const std::optional<int64_t>& n) { return !n || *n >= 1; }, ">= 1"));
  }
};

/// The measurements of a run.
struct MeasuredMemory {
  ChainCost cost = {};     // of its batch
  ChainCost smaller = {};  // of another one
  MemoryBudget free = {};
  std::string model = "";                 // its class
  std::string device = "";                // "cpu", "cuda:0"
  std::string config = "";                // the last --config FILE; "" without one
  int64_t samples = 0;                    // of the whole batch; cost may be about a part of it
  std::string strategy = "";              // dp or dp_balanced, where several devices of a process compute a batch
  std::vector<std::string> devices = {};  // theirs, "cpu:0", "cpu:1"
  std::vector<std::vector<std::string>> own_segments = {};  // of the run's recompute, by its blocks' names
  std::vector<std::string> notes = {};                      // sentences that the table begins with
};

/// Measures the run that these arguments describe (--config FILE, overrides); throws ConfigError.
using MeasureMemory = std::function<MeasuredMemory(const std::vector<std::string>& run_arguments)>;

/// Runs "levin plan memory": a table of plans, a chart of them, and with --apply a run file. All other arguments
/// describe the run. Returns the exit code.
[[nodiscard]] int run_plan_memory(const std::vector<std::string>& arguments, int width, const MeasureMemory& measure);

/// One line of the table.
struct MemoryLine {
  std::string name = "";
  Segments segments = {};
  MemoryPrediction prediction = {};
  int64_t largest_batch = 0;  // below the budget
};
/// No recomputation, each block, √n segments, the least memory, what the run's `recompute` says, and the best under the
/// budget if anything meets it.
[[nodiscard]] std::vector<MemoryLine> plan_memory(const MeasuredMemory& measured, MemoryBudget budget);

// --- Measures the memory of a run's step, on this machine, without training.

/// Measures the run that these arguments describe, as after "levin fit": on one device of the requested kind, without
/// logs and checkpoints. Throws ConfigError for mistakes in the arguments, and the run's exceptions.
[[nodiscard]] MeasuredMemory measure_memory(const std::vector<std::string>& run_arguments);

}  // namespace levin
