#include "levin/profilers/trace_profiler.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/libtorch/device_memory.h"
#include "levin/libtorch/profiler.h"

namespace levin {

namespace {

KinetoRecording recording_of(const TraceProfilerOptions& options, const ProfiledRun& run) {
  return {.on_gpu = run.on_gpu, .shapes = options.record_shapes, .memory = options.profile_memory};
}

const char* step_action(const std::string& stage) {
  if (stage == "validate") return "validation_step";
  if (stage == "test") return "test_step";
  return stage == "predict" ? "predict_step" : "run_training_batch";
}

// A user's ranges and the host's operators; what runs on a GPU has its own time line in the file.
std::string table_of(const auto& result, int64_t rows) {
  std::vector<TracedCall> calls;
  for (const auto& event : result.events()) {
    if (event.deviceType() != at::kCPU || event.isAsync() || is_hidden(event)) continue;
    if (event.scope() == static_cast<uint8_t>(at::RecordScope::USER_SCOPE)) continue;
    calls.push_back({event.name(), event.startThreadId(), static_cast<int64_t>(event.startNs()),
                     static_cast<int64_t>(event.durationNs())});
  }
  return calls.empty() ? "" : operator_table(operator_totals(std::move(calls)), rows);
}

}  // namespace

int64_t TraceSchedule::place(int64_t step) const {
  const int64_t length = wait + warmup + active;
  const int64_t counted = step - skip_first;
  if (counted < 0 || (repeat > 0 && counted / length >= repeat)) return -1;
  return counted % length;
}

TraceSchedule::Phase TraceSchedule::phase(int64_t step) const {
  const int64_t at = place(step);
  if (at < wait) return Phase::off;
  return at < wait + warmup ? Phase::warmup : Phase::active;
}

bool TraceSchedule::ends_cycle(int64_t step) const {
  return place(step) == wait + warmup + active - 1;
}

std::vector<OperatorTotal> operator_totals(std::vector<TracedCall> calls) {
  // A call comes before those within it: they start later, or at once and are shorter.
  std::sort(calls.begin(), calls.end(), [](const TracedCall& a, const TracedCall& b) {
    return std::tuple(a.thread, a.start, -a.duration) < std::tuple(b.thread, b.start, -b.duration);
  });
  std::map<std::string, OperatorTotal> by_name;
  std::vector<const TracedCall*> open;  // the calls around the one at hand
  for (const TracedCall& call : calls) {
    auto is_around = [&](const TracedCall& outer) {
      return outer.thread == call.thread && call.start < outer.start + outer.duration;
    };
    while (!open.empty() && !is_around(*open.back())) open.pop_back();
    if (!open.empty()) by_name[open.back()->name].self -= call.duration;
    OperatorTotal& total = by_name[call.name];
    ++total.calls;
    total.total += call.duration;
    total.self += call.duration;
    open.push_back(&call);
  }
  std::vector<OperatorTotal> totals;
  for (auto& [name, total] : by_name) {
    total.name = name;
    totals.push_back(total);
  }
  std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) { return a.self > b.self; });
  return totals;
}

std::string operator_table(const std::vector<OperatorTotal>& totals, int64_t rows) {
  int64_t all = 0;
  for (const auto& total : totals) all += total.self;
  const auto shown = std::min<size_t>(totals.size(), static_cast<size_t>(rows));
  size_t widest = 8;
  for (size_t i = 0; i < shown; ++i) widest = std::max(widest, totals[i].name.size());
  const int width = static_cast<int>(std::min<size_t>(widest, 60));
  std::string text = formatted("%-*s  %8s  %10s  %10s  %6s", width, "operator", "calls", "self ms", "total ms", "self");
  for (size_t i = 0; i < shown; ++i) {
    const OperatorTotal& one = totals[i];
    text += formatted("\n%-*.*s  %8ld  %10.3f  %10.3f  %4.1f %%", width, width, one.name.c_str(), one.calls,
                      1e-6 * static_cast<double>(one.self), 1e-6 * static_cast<double>(one.total),
                      all > 0 ? 100.0 * static_cast<double>(one.self) / static_cast<double>(all) : 0.0);
  }
  if (shown < totals.size()) text += "\n… and " + std::to_string(totals.size() - shown) + " more";
  return text;
}

TraceProfiler::TraceProfiler(TraceProfilerOptions options)
    : options_(checked(std::move(options), "TraceProfilerOptions")),
      schedule_{options_.skip_first, options_.wait, options_.warmup, options_.active, options_.repeat} {
  check_joined_name("TraceProfilerOptions.filename", options_.filename, "dirpath");
}

TraceProfiler::~TraceProfiler() {
  end();
}

void TraceProfiler::begin(const ProfiledRun& run) {
  // Otherwise Kineto reports a missing GPU on standard error. It reads the variable when it is first set up.
  if (!run.on_gpu) ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  run_ = run;
  if (!options_.dirpath.empty()) run_.log_dir = options_.dirpath;
  step_action_ = step_action(run.stage);
  step_ = cycle_ = 0;
  running_ = true;
  guarded([this] { enter_step(); });
}

void TraceProfiler::end() {
  if (!running_) return;
  running_ = false;
  guarded([this] {
    if (recording_) finish_recording();
  });
  ranges_.clear();
}

// A failure must not end the run, only the trace; and stop() is called by destructors.
template <class Action>
void TraceProfiler::guarded(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    give_up(exception_text(error));
  }
}

void TraceProfiler::give_up(const std::string& why) {
  running_ = recording_ = false;
  Console::instance().warn("trainer.profiler: trace: " + why + " The run continues without a trace.");
}

TraceProfiler::Range TraceProfiler::open_range(const char* action, const std::string& shown) {
  Range range{action, std::make_shared<at::RecordFunction>(at::RecordScope::USER_SCOPE)};
  if (range.record->isActive()) range.record->before(shown);
  return range;
}

void TraceProfiler::start(const char* action) {
  if (recording_) ranges_.push_back(open_range(action, action));
}

void TraceProfiler::stop(const char* action) {
  for (size_t depth = ranges_.size(); depth > 0; --depth) {
    if (std::strcmp(ranges_[depth - 1].action, action) != 0) continue;
    while (ranges_.size() >= depth) ranges_.pop_back();  // what an error left open is closed with it
    break;
  }
  if (!running_ || std::strcmp(action, step_action_) != 0) return;
  guarded([this] {
    leave_step();
    ++step_;
    enter_step();
  });
}

void TraceProfiler::enter_step() {
  const auto phase = schedule_.phase(step_);
  if (phase == TraceSchedule::Phase::off) return;
  if (!set_up_) set_up_tracer();
  if (phase == TraceSchedule::Phase::warmup) return;
  if (!recording_) start_recording();
  step_name_ = "ProfilerStep#" + std::to_string(step_);  // the name that PyTorch's own tools look for
  step_range_ = open_range("", step_name_).record;
}

void TraceProfiler::leave_step() {
  step_range_.reset();
  if (recording_ && schedule_.ends_cycle(step_)) finish_recording();
}

void TraceProfiler::set_up_tracer() {
  recording_of(options_, run_).prepare();
  set_up_ = true;
}

void TraceProfiler::start_recording() {
  recording_of(options_, run_).start();
  recording_ = true;
}

void TraceProfiler::finish_recording() {
  while (!ranges_.empty()) ranges_.pop_back();
  step_range_.reset();
  recording_ = set_up_ = false;
  save_recording();
}

// As PyTorch's profiler does: Kineto collects what has been done, and the GPU may still have steps to do.
void TraceProfiler::save_recording() {
  if (run_.on_gpu) synchronize_accelerator();
  const auto result = KinetoRecording::finish();
  if (options_.row_limit > 0) table_ = table_of(*result, options_.row_limit);
  make_folder(run_.log_dir);
  const std::string path = (std::filesystem::path(run_.log_dir) /
                            (run_.stage + "-" + options_.filename + "-rank" + std::to_string(run_.rank) + "-" +
                             std::to_string(cycle_++) + ".pt.trace.json"))
                               .string();
  check_replaceable(path);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  result->save(path);  // does not report failure
  std::error_code code;
  if (std::filesystem::file_size(path, code) == 0 || code) {
    throw Error(path + " could not be written. Is the disk full?");
  }
  files_.push_back(path);
}

std::string TraceProfiler::summary() const {
  if (files_.empty()) {
    return "Trace: nothing was recorded: the run was shorter than skip_first + wait + warmup = " +
           count_of(options_.skip_first + options_.wait + options_.warmup, "step") + ".";
  }
  std::string text;
  for (const auto& file : files_) text += (text.empty() ? "Trace: " : "\nTrace: ") + file;
  text += " (open it in ui.perfetto.dev)";
  return table_.empty() ? text : text + "\n" + table_;
}

}  // namespace levin
