// A trace of some steps: every operator, with Levin's own ranges (training_step, backward, …) around them, as Chrome
// JSON through LibTorch's Kineto. Open it in ui.perfetto.dev or chrome://tracing.
//
//   trainer: {profiler: {class_path: trace, init_args: {wait: 10, active: 5}}}
//   -> levin_logs/version_0/fit-trace-rank0-0.pt.trace.json
//
// Steps of a fit are training batches (the validation between two of them belongs to the first); else they are batches
// of the evaluation. Each rank writes its own files. Training thread only; one trace of a process at a time.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/profilers/profiler.h"

namespace levin {

/// The steps of a run that a trace records: after `skip_first`, cycles of `wait` steps without, `warmup` steps in which
/// the tracer is set up, and `active` recorded steps, as in torch.profiler.schedule.
struct TraceSchedule {
  int64_t skip_first = 0;
  int64_t wait = 1;
  int64_t warmup = 1;
  int64_t active = 3;
  int64_t repeat = 1;  // cycles; 0: to the end of the run

  /// What happens in a step: nothing, the tracer is set up, or the step is recorded.
  enum class Phase { off, warmup, active };

  /// Returns the phase of step `step`, counted from 0.
  [[nodiscard]] Phase phase(int64_t step) const;
  /// Returns true if `step` is the last recorded step of a cycle.
  [[nodiscard]] bool ends_cycle(int64_t step) const;

 private:
  /// Returns the position in the cycle; -1 outside all cycles.
  [[nodiscard]] int64_t place(int64_t step) const;
};

// Statistics of the operators in a trace: calls, time with and without the operators within, sorted by own time.

/// One call of an operator, or a range, on one thread. The calls of a thread nest.
struct TracedCall {
  std::string name = "";
  uint64_t thread = 0;
  int64_t start = 0;     // ns
  int64_t duration = 0;  // ns
};

/// The calls of all operators of one name, added up.
struct OperatorTotal {
  std::string name = "";
  int64_t calls = 0;
  int64_t total = 0;  // ns, with the calls within; a call within itself counts twice
  int64_t self = 0;   // ns, without
};

/// Returns the sums by name, the largest own time first.
[[nodiscard]] std::vector<OperatorTotal> operator_totals(std::vector<TracedCall> calls);

/// Returns the first `rows` operators as a table for people.
[[nodiscard]] std::string operator_table(const std::vector<OperatorTotal>& totals, int64_t rows);

/// Options of TraceProfiler; the schedule's names are torch.profiler.schedule's.
struct TraceProfilerOptions {
  std::string dirpath = "";        // "": the run's log folder
  std::string filename = "trace";  // <stage>-<filename>-rank<R>-<cycle>.pt.trace.json
  int64_t skip_first = 0;          // steps
  int64_t wait = 1;
  int64_t warmup = 1;
  int64_t active = 3;
  int64_t repeat = 1;
  bool record_shapes = false;
  bool profile_memory = false;
  int64_t row_limit = 20;

  template <class = void>
  static auto fields() {
    using O = TraceProfilerOptions;
    return levin::fields(
        field("dirpath", &O::dirpath, "folder of the traces; empty: the run's log folder"),
        field("filename", &O::filename, "part of the files' names: STAGE-FILENAME-rankR-CYCLE.pt.trace.json")
            .not_empty(),
        field("skip_first", &O::skip_first, "steps before the first cycle").min(0),
        field("wait", &O::wait, "steps of a cycle that are left out").min(0),
        field("warmup", &O::warmup, "steps of a cycle in which the tracer is set up").min(0),
        field("active", &O::active, "steps of a cycle that are recorded").min(1),
        field("repeat", &O::repeat, "cycles, and files; 0: to the end of the run").min(0),
        field("record_shapes", &O::record_shapes, "record the shapes of operators' inputs"),
        field("profile_memory", &O::profile_memory, "record what operators allocate and free"),
        field("row_limit", &O::row_limit, "operators in the printed table; 0: no table").min(0));
  }
};

/// A profiler that records some steps of each run. If a trace fails, it logs a warning and the run continues without a
/// trace. Used by the training thread of each rank.
class TraceProfiler final : public Profiler {
 public:
  using Options = TraceProfilerOptions;
  explicit TraceProfiler(Defaults = {}) : TraceProfiler(TraceProfilerOptions()) {}
  explicit TraceProfiler(TraceProfilerOptions options);
  ~TraceProfiler() override;

  void begin(const ProfiledRun& run) override;
  /// Writes a cycle that is open.
  void end() override;
  void start(const char* action) override;
  void stop(const char* action) override;

  /// Returns the files, and the operators that took the most time in the last of them.
  [[nodiscard]] std::string summary() const override;
  /// Returns the traces written so far.
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

 private:
  struct Range {
    const char* action;
    std::shared_ptr<at::RecordFunction> record;
  };

  void enter_step();
  void leave_step();
  void start_recording();
  void finish_recording();
  void save_recording();
  void set_up_tracer();
  template <class Action>
  void guarded(Action action);
  void give_up(const std::string& why);
  [[nodiscard]] static Range open_range(const char* action, const std::string& shown);

  TraceProfilerOptions options_;
  TraceSchedule schedule_;
  ProfiledRun run_ = {};
  const char* step_action_ = "";  // the action that is a step
  bool running_ = false;          // between begin() and end()
  bool set_up_ = false;
  bool recording_ = false;
  int64_t step_ = 0;
  int64_t cycle_ = 0;  // files of this run
  std::string step_name_ = "";
  std::shared_ptr<at::RecordFunction> step_range_ = nullptr;
  std::vector<Range> ranges_ = {};
  std::vector<std::string> files_ = {};
  std::string table_ = "";
};

}  // namespace levin
