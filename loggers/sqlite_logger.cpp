#include "levin/loggers/sqlite_logger.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/paths.h"
#include "levin/core/wall_clock.h"
#include "levin/loggers/flat_options.h"

namespace levin {

namespace fs = std::filesystem;

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
        if (!waiting_.empty()) write_now();
      }) {}

SQLiteLogger::~SQLiteLogger() {
  timer_.stop();
  if (store_ != nullptr && !waiting_.empty()) write_now();
}

uint32_t SQLiteLogger::takes() const {
  return LogKind::scalars | LogKind::hyperparameters | LogKind::histograms | LogKind::text | LogKind::tables |
         LogKind::artifacts;
}

void SQLiteLogger::start(const std::string& default_root_dir, bool resume) {
  if (!path_.empty()) return;
  path_ = options_.path.empty() ? (fs::path(default_root_dir) / "runs.sqlite").string() : options_.path;
  folder_ = absolute_path(default_root_dir);
  may_continue_ = resume;
  uuid_ = new_uuid();
  if (const std::string parent = fs::path(path_).parent_path().string(); !parent.empty()) make_folder(parent);
  try {
    store_ = std::make_unique<SqliteStore>(path_, options_.busy_timeout);
  } catch (const SqliteError& error) {
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
  if (is_open_) return;
  store_->mark_killed(folder_);
  store_->open_run(uuid_, options_.name, folder_);
  is_open_ = true;
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

// Tries; rows that cannot be written keep waiting, and the next attempt is due after a pause that doubles.
void SQLiteLogger::write_now() {
  const auto count = static_cast<int64_t>(waiting_.size());
  try {
    open_run();
    store_->write(waiting_);
  } catch (const Error& error) {
    return report_failure(error.what());
  }
  waiting_.clear();
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

// What is no row: reported if it cannot be written, as nothing keeps it.
void SQLiteLogger::write_aside(const std::string& what, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    Console::instance().error("SQLiteLogger: cannot write " + what + " to " + error.what() +
                              " It is not in the file; training continues.");
  }
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
  write_aside("the hyperparameters", [&] {
    open_run();
    store_->write_hparams(flat_options(hparams));
  });
}

void SQLiteLogger::log_final_metrics(const MetricList& metrics, const LogPoint&) {
  const std::lock_guard lock(mutex_);
  write_aside("the final metrics", [&] { store_->write_final_metrics(metrics); });
}

State SQLiteLogger::state() const {
  const std::lock_guard lock(mutex_);
  State state;
  state.set("run", uuid_);
  if (store_ != nullptr) state.put("rows", store_->position());
  return state;
}

void SQLiteLogger::load_state(const State& saved) {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return;
  waiting_.clear();
  write_aside("the resumed run", [&] {
    const std::string run = saved.empty() ? uuid_ : saved.get<std::string>("run");
    if (run != uuid_) {
      if (!may_continue_ || !store_->has_run(run, folder_)) return;
      store_->remove_run();  // the one that was begun before it was known which one is continued
      uuid_ = run;
      store_->open_run(uuid_, options_.name, folder_);
    }
    store_->cut(saved.part("rows"));
  });
}

void SQLiteLogger::save() {
  const std::lock_guard lock(mutex_);
  if (store_ != nullptr && !waiting_.empty()) write_now();
}

// The last chance for waiting rows.
void SQLiteLogger::finalize(const std::string& status) {
  timer_.stop();
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return;
  if (!waiting_.empty()) write_now();
  if (failing_) {
    lost_ += static_cast<int64_t>(waiting_.size());
    waiting_.clear();
    Console::instance().error("SQLiteLogger: " + count_of(std::exchange(lost_, 0), "row is", "rows are") +
                              " lost: " + cause_);
    failing_ = false;
  }
  if (!is_open_) return;
  is_open_ = false;
  write_aside("the run's end", [&] { store_->end_run(status); });
}

}  // namespace levin
