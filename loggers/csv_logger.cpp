#include "levin/loggers/csv_logger.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/loggers/run_folder.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMostLeftOut = 4095;

std::string counted_rows(int64_t count) {
  return count_of(count, "row");
}

}  // namespace

CSVLogger::CSVLogger(CSVLoggerOptions options) : options_(checked(std::move(options), "CSVLoggerOptions")) {}

CSVLogger::~CSVLogger() {
  try {
    finalize("");
  } catch (const std::exception& error) {
    Console::instance().error(error.what());
  }
}

std::string CSVLogger::experiment_folder(const std::string& default_root_dir) const {
  return (fs::path(options_.save_dir.empty() ? default_root_dir : options_.save_dir) / options_.name).string();
}

void CSVLogger::start_in(const std::string& folder) {
  log_dir_ = folder;
  make_folder(log_dir_);
  file_ = MetricsFile((fs::path(log_dir_) / "metrics.csv").string());
}

void CSVLogger::own_folder() {
  mark_job(log_dir_);
  try {
    file_.look();  // a named version is continued
  } catch (const Error&) {
    // a file that cannot be read cannot be written either, which is reported then
  }
}

void CSVLogger::start(const std::string& default_root_dir, bool resume) {
  if (!log_dir_.empty()) return;
  const std::string experiment = experiment_folder(default_root_dir);
  if (!options_.version.empty()) return start_in((fs::path(experiment) / options_.version).string());
  const std::vector<int64_t> earlier = run_versions(experiment);
  start_in(resume && !earlier.empty() ? version_folder(experiment, earlier.back()) : claim_run_folder(experiment));
}

void CSVLogger::start_again(const std::string& default_root_dir, bool resume) {
  const std::string own = options_.version.empty() ? folder_of_job(experiment_folder(default_root_dir)) : "";
  if (own.empty() || !log_dir_.empty()) return start(default_root_dir, resume);
  start_in(own);
}

std::vector<std::string> CSVLogger::earlier_log_dirs() const {
  const std::string experiment = fs::path(log_dir_).parent_path().string();
  const std::vector<int64_t> all = run_versions(experiment);
  std::vector<std::string> folders;
  for (auto number = all.rbegin(); number != all.rend(); ++number) {
    const std::string folder = version_folder(experiment, *number);
    if (folder != log_dir_) folders.push_back(folder);
  }
  const bool numbered = folders.size() < all.size();
  return numbered ? folders : std::vector<std::string>();
}

void CSVLogger::log_metrics(const MetricList& metrics, int64_t step) {
  file_.add(metrics, step);
  if (failing_) lost_ += file_.drop_excess();
  if (file_.waiting() >= options_.flush_logs_every_n_steps) write(false);
}

void CSVLogger::log_hyperparams(const ConfigNode& hparams) {
  write_file_durably((fs::path(log_dir_) / "hparams.yaml").string(), to_yaml(hparams));
}

State CSVLogger::state() const {
  State state;
  state.set("rows", file_.rows());
  state.set("columns", file_.columns());
  return state;
}

void CSVLogger::load_state(const State& saved) {
  const int64_t wanted = saved.empty() ? 0 : saved.get<int64_t>("rows");
  std::error_code code;
  const bool was_there = fs::exists(metrics_path(), code);
  const auto columns = saved.empty() ? std::vector<std::string>() : saved.get<std::vector<std::string>>("columns");
  const int64_t found = file_.cut(wanted, columns);
  if (!was_there || found >= wanted) return;
  Console::instance().warn("CSVLogger: " + metrics_path() + " holds " + count_of(found, "row") +
                           " where the checkpoint counts " + std::to_string(wanted) + ". The missing ones are lost.");
}

void CSVLogger::save() {
  write(true);
}

// See Note [Waiting for a disk].
void CSVLogger::write(bool all) {
  if (file_.waiting() == 0 || left_out_++ < leave_out_) return;
  const int64_t waited = file_.waiting();
  try {
    file_.write(all);
  } catch (const Error& error) {
    return report_failure(error.what());
  }
  left_out_ = leave_out_ = 0;
  if (!std::exchange(failing_, false)) return;
  Console::instance().print(
      "CSVLogger: " + metrics_path() + " can be written again. It has the " + counted_rows(waited - file_.waiting()) +
      " that waited" +
      (lost_ > 0 ? "; " + count_of(lost_, "row before them is", "rows before them are") + " lost." : "."));
  lost_ = 0;
}

void CSVLogger::report_failure(const std::string& what) {
  if (!std::exchange(failing_, true)) {
    Console::instance().error("CSVLogger: " + what +
                              " Rows are kept in memory until they can be written; training continues.");
  }
  cause_ = what;
  leave_out_ = std::min(2 * leave_out_ + 1, kMostLeftOut);
  left_out_ = 0;
}

// The last chance for waiting rows.
void CSVLogger::finalize(const std::string&) {
  leave_out_ = 0;
  write(true);
  if (!failing_) return;
  lost_ += file_.drop_waiting();
  Console::instance().error(
      "CSVLogger: " + count_of(std::exchange(lost_, 0), "row of metrics is", "rows of metrics are") +
      " lost: " + cause_);
  failing_ = false;
  left_out_ = leave_out_ = 0;
}

}  // namespace levin
