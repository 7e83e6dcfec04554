#include "levin/loggers/sqlite_logger.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/paths.h"
#include "levin/core/wall_clock.h"
#include "levin/loggers/flat_options.h"
#include "levin/loggers/logger_folder.h"

namespace levin {

namespace {

constexpr size_t kMostWaitingRows = 1'000'000;
constexpr Seconds kFirstPause = Seconds(1);
constexpr Seconds kLongestPause = Seconds(60);

std::string new_uuid() {
  std::random_device random;
  std::string text;
  for (int k = 0; k < 4; ++k) {
    constexpr std::string_view hex = "0123456789abcdef";
    uint32_t bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) text += hex[bits & 15];
  }
  return text;
}

double or_now(double time) {
  return time > 0 ? time : seconds_since_1970();
}

std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

SQLiteLogger::SQLiteLogger(SQLiteLoggerOptions options)
    : options_(checked(std::move(options), "SQLiteLoggerOptions")), timer_([this] {
        const std::lock_guard lock(mutex_);
        if (is_waiting()) write_now();
      }) {}

SQLiteLogger::~SQLiteLogger() {
  timer_.stop();
  if (is_waiting()) write_now();
}

uint32_t SQLiteLogger::takes() const {
  return LogKind::scalars | LogKind::hyperparameters | LogKind::histograms | LogKind::text | LogKind::tables |
         LogKind::artifacts;
}

void SQLiteLogger::start(const std::string& default_root_dir, bool resume) {
  if (!path_.empty()) return;
  path_ = path_of_only_file("SQLiteLogger", options_.path, default_root_dir, "runs.sqlite");
  folder_ = absolute_path(default_root_dir);
  may_continue_ = resume;
  uuid_ = new_uuid();
  const std::lock_guard lock(mutex_);
  try {
    store_ = std::make_unique<SqliteStore>(path_, options_.busy_timeout);
  } catch (const SqliteError& error) {
    if (error.is_passing()) return report_failure(error.what());
    path_.clear();  // it has not started
    throw Error(std::string("SQLiteLogger: cannot open ") + error.what() +
                " Check the path, the disk and who else uses the file, or choose another path.");
  }
}

void SQLiteLogger::own_folder() {
  const std::lock_guard lock(mutex_);
  try {
    open_run();
  } catch (const Error& error) {
    report_failure(error.what());
  }
}

void SQLiteLogger::open_run() {
  if (store_ == nullptr) store_ = std::make_unique<SqliteStore>(path_, options_.busy_timeout);
  if (!is_open_) {
    store_->mark_killed(folder_);
    store_->open_run(uuid_, options_.name, folder_);
    is_open_ = true;
  }
  if (continued_) continue_run(*continued_);
  continued_.reset();
}

void SQLiteLogger::add(SqliteRow row) {
  const std::lock_guard lock(mutex_);
  row.at.time = or_now(row.at.time);
  if (waiting_.empty()) timer_.arm(options_.flush_every);
  waiting_.push_back(std::move(row));
  if (waiting_.size() > kMostWaitingRows) {
    waiting_.pop_front();
    ++lost_;
  }
  const bool is_full = static_cast<int64_t>(waiting_.size()) >= options_.flush_logs_every_n_rows;
  if (is_full && (!failing_ || std::chrono::steady_clock::now() >= next_)) write_now();
}

bool SQLiteLogger::is_waiting() const {
  return !waiting_.empty() || !hparams_.empty() || !final_metrics_.empty() || continued_.has_value();
}

// A disk without room for all rows may have room for some of them.
void SQLiteLogger::write_rows() {
  for (size_t count = waiting_.size(); !waiting_.empty();) {
    count = std::min(count, waiting_.size());
    try {
      store_->write(waiting_, count);
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    } catch (const SqliteError& error) {
      if (error.is_busy() || !error.is_passing() || count == 1) throw;
      count /= 2;
    }
  }
}

// Tries; what cannot be written keeps waiting, and the next attempt is due after a pause that doubles.
void SQLiteLogger::write_now() {
  const auto count = static_cast<int64_t>(waiting_.size());
  try {
    open_run();
    if (!hparams_.empty()) store_->write_hparams(hparams_);
    hparams_.clear();
    write_rows();
    if (!final_metrics_.empty()) store_->write_final_metrics(final_metrics_);
    final_metrics_.clear();
  } catch (const Error& error) {
    return report_failure(error.what());
  }
  pause_ = Seconds(0);
  if (!std::exchange(failing_, false)) return;
  Console::instance().print(
      "SQLiteLogger: " + path_ + " can be written again. It has the " + count_of(count, "row") + " that waited" +
      (lost_ > 0 ? "; " + count_of(lost_, "row before them is", "rows before them are") + " lost." : "."));
  lost_ = 0;
}

void SQLiteLogger::report_failure(const std::string& what) {
  cause_ = what;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  next_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(pause_);
  timer_.arm(pause_);
  if (std::exchange(failing_, true)) return;
  Console::instance().error("SQLiteLogger: cannot write " + what +
                            " Rows are kept in memory until they can be written; training continues.");
}

void SQLiteLogger::log_metrics(const MetricList& metrics, const LogPoint& at) {
  for (const auto& [name, value] : metrics) add({SqliteRow::Table::metrics, name, at, value, ""});
}

void SQLiteLogger::log_text(const std::string& name, const std::string& text, const LogPoint& at) {
  add({SqliteRow::Table::texts, name, at, 0, text});
}

void SQLiteLogger::log_artifact(const std::string& name, const std::string& path, const LogPoint& at) {
  add({SqliteRow::Table::artifacts, name, at, 0, absolute_path(path)});
}

void SQLiteLogger::log_table(const std::string& name, const LogTable& table, const LogPoint& at) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& row : table.rows) {
    nlohmann::json cells = nlohmann::json::array();
    for (const auto& cell : row) std::visit([&](const auto& value) { cells.push_back(value); }, cell);
    rows.push_back(std::move(cells));
  }
  add({SqliteRow::Table::tables, name, at, 0, json_text({{"columns", table.columns}, {"data", std::move(rows)}})});
}

void SQLiteLogger::log_histogram(const std::string& name, const Histogram& histogram, const LogPoint& at) {
  const nlohmann::json json = {{"min", histogram.min},
                               {"max", histogram.max},
                               {"count", histogram.count},
                               {"sum", histogram.sum},
                               {"sum_squares", histogram.sum_squares},
                               {"nonfinite", histogram.nonfinite},
                               {"edges", histogram.edges},
                               {"counts", histogram.counts}};
  add({SqliteRow::Table::histograms, name, at, 0, json_text(json)});
}

void SQLiteLogger::log_hyperparams(const ConfigNode& hparams) {
  const std::lock_guard lock(mutex_);
  hparams_ = flat_options(hparams);
  if (!failing_) write_now();
}

void SQLiteLogger::log_final_metrics(const MetricList& metrics, const LogPoint&) {
  const std::lock_guard lock(mutex_);
  final_metrics_ = metrics;
}

State SQLiteLogger::state() const {
  const std::lock_guard lock(mutex_);
  if (continued_ && !continued_->empty()) return *continued_;
  State state;
  state.set("run", uuid_);
  if (store_ != nullptr) state.put("rows", store_->position());
  return state;
}

void SQLiteLogger::load_state(const State& saved) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;
  waiting_.clear();
  continued_ = saved;
  write_now();
}

void SQLiteLogger::continue_run(const State& saved) {
  const std::string run = saved.empty() ? uuid_ : saved.get<std::string>("run");
  if (run != uuid_) {
    if (!may_continue_ || !store_->has_run(run, folder_)) return;
    store_->remove_run();  // the one that was begun before it was known which one is continued
    uuid_ = run;
    store_->open_run(uuid_, options_.name, folder_);
  }
  store_->cut(saved.part("rows"));
}

void SQLiteLogger::save() {
  const std::lock_guard lock(mutex_);
  if (is_waiting()) write_now();
}

// The last chance for what waits.
void SQLiteLogger::finalize(const std::string& status) {
  timer_.stop();
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;
  if (is_waiting() || failing_) write_now();
  if (failing_) {
    lost_ += static_cast<int64_t>(waiting_.size());
    const std::string also = std::string(hparams_.empty() ? "" : ", and the hyperparameters") +
                             (final_metrics_.empty() ? "" : ", and the final metrics");
    waiting_.clear();
    hparams_.clear();
    final_metrics_.clear();
    Console::instance().error("SQLiteLogger: " + count_of(std::exchange(lost_, 0), "row is", "rows are") + " lost" +
                              also + ": " + cause_);
    failing_ = false;
  }
  if (!std::exchange(is_open_, false)) return;
  try {
    store_->end_run(status);
  } catch (const Error& error) {
    Console::instance().error(std::string("SQLiteLogger: cannot write the run's end to ") + error.what() +
                              " Its status stays \"running\"; training is not affected.");
  }
}

}  // namespace levin
