#include "levin/trainer/run/run_reporter.h"

#include <unistd.h>

#include "levin/core/options/value.h"
#include "levin/core/process/process_memory.h"
#include "levin/core/process/this_process.h"
#include "levin/loggers/run_recorder.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/run/fit_length.h"
#include "levin/trainer/run/run.h"

namespace levin {

namespace {

constexpr auto kReportEvery = std::chrono::seconds(1);

const char* stage_word(const Run& run) {
  switch (run.entry.phase) {
    case Phase::train: return "training";
    case Phase::validate: return "validation";
    case Phase::test: return "test";
    case Phase::predict: return "prediction";
    default: return "set-up";
  }
}

RankUsage usage_of(const Run& run, int64_t rank) {
  const ProcessMemory memory = process_memory();
  return {.rank = rank,
          .host = host_name(),
          .pid = getpid(),
          .stage = stage_word(run),
          .memory_bytes = memory.resident,
          .peak_memory_bytes = memory.peak};
}

int64_t or_unlimited(int64_t limit) {
  return limit == kUnlimited ? -1 : limit;
}

BestCheckpoint best_of(const Run& run) {
  for (const Checkpoint* callback : checkpoint_callbacks(run.entry.callbacks)) {
    if (BestCheckpoint best = callback->best_checkpoint(); !best.monitor.empty()) return best;
  }
  return {};
}

}  // namespace

RunReporter::RunReporter(std::string folder, int64_t rank)
    : folder_(std::move(folder)), rank_(rank), record_(rank == 0 ? std::make_shared<RunRecorder>(folder_) : nullptr) {}

std::shared_ptr<Logger> RunReporter::record() const {
  return record_;
}

void RunReporter::begin(Run& run, bool continues) {
  if (run.loggers.empty()) return;
  started_ = seconds_since_1970();
  share_at_start_ = run.entry.stage == Stage::fit ? share_done(run) : std::nullopt;
  const bool resumes = std::exchange(has_begun_, true) || continues;
  if (record_ != nullptr) {
    run.log_stream->then([record = record_, status = status_of(run), resumes] { record->begin(status, resumes); });
  }
  report(run, "running", "");
}

void RunReporter::saved(Run& run, const std::string& path, int64_t step, int64_t epoch) {
  if (record_ == nullptr || run.loggers.empty()) return;
  SavedCheckpoint saved{path, step, epoch, seconds_since_1970()};
  saved_at_ = saved.time;
  if (const BestCheckpoint best = best_of(run); best.path == path) saved.score = best.score;
  run.log_stream->then([record = record_, saved] { record->add_checkpoint(saved); });
}

void RunReporter::end(Run& run, const std::string& status, const std::string& error) {
  if (!has_begun_) return;
  report(run, status, error);
  next_ = std::chrono::steady_clock::time_point::max();
}

void RunReporter::report(Run& run, const std::string& status, const std::string& error) {
  next_ = std::chrono::steady_clock::now() + kReportEvery;
  if (run.loggers.empty()) return;  // a trial
  if (record_ == nullptr) return RunRecorder::write_usage(folder_, usage_of(run, rank_));
  RunProgress now = status_of(run);
  now.status = status;
  now.error = error;
  if (status == "success" && run.entry.stage == Stage::fit) now.stop_reason = end_reason(run.trainer);
  send_status(run, now);
  run.log_stream->then([record = record_, now = std::move(now)] { record->write(now); });
}

// Sends the status to loggers that show the progress of a run. Rates are measured since the last call.
void RunReporter::send_status(Run& run, const RunProgress& now) {
  MetricList figures{{"epoch", static_cast<double>(now.epoch)},
                     {"global_step", static_cast<double>(now.step)},
                     {"skipped_steps", static_cast<double>(now.skipped_steps)}};
  if (now.progress) figures.emplace_back("progress", *now.progress);
  if (saved_at_ > 0) figures.emplace_back("checkpoint_time", saved_at_);
  if (last_.time > 0 && now.now > last_.time) {
    const double seconds = now.now - last_.time;
    figures.emplace_back("batches_per_second", static_cast<double>(now.total_batches - last_.batches) / seconds);
    figures.emplace_back("samples_per_second", static_cast<double>(now.samples - last_.samples) / seconds);
  }
  last_ = {now.now, now.total_batches, now.samples};
  run.log_stream->log(LogKind::status, now.windows, 0,
                      [figures](Logger& logger, const LogPoint& at) { logger.log_status(figures, at); });
}

RunProgress RunReporter::status_of(const Run& run) const {
  RunProgress now;
  now.command = run.entry.stage ? enum_name(*run.entry.stage) : "";
  now.strategy = run.strategy->name();
  now.precision = run.precision->name();
  now.device = run.strategy->placement().device().str();
  now.world_size = run.strategy->ranks().world_size();
  now.started = started_;
  now.now = seconds_since_1970();
  now.epoch = run.progress.epoch;
  now.max_epochs = or_unlimited(run.plan.max_epochs);
  now.step = run.progress.global_step;
  now.max_steps = or_unlimited(run.plan.max_steps);
  now.windows = run.progress.windows;
  now.total_batches = run.progress.total_batches;
  now.samples = run.entry.samples * now.world_size;
  if (run.entry.stage == Stage::fit) now.progress = share_done(run);
  now.progress_at_start = share_at_start_;
  const BestCheckpoint best = best_of(run);
  now.monitor = best.monitor;
  now.monitor_mode = best.mode;
  now.best_score = best.score;
  now.best_path = best.path;
  now.skipped_steps = run.progress.skipped_steps;
  now.nonfinite_losses = run.entry.engine != nullptr ? run.entry.engine->nonfinite_losses() : 0;
  const StepTimes times = run.entry.time_split.times();
  for (size_t k = 0; k < kStepParts; ++k) {
    const auto part = static_cast<StepPart>(k);
    now.time_split.emplace_back(step_part_name(part), times[part]);
  }
  now.trained_seconds = times.training() + times[StepPart::validation];
  now.own = usage_of(run, rank_);
  return now;
}

}  // namespace levin
