#include "levin/cli/runs/run_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "levin/cli/runs/run_alive.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

constexpr uint64_t kMaxRecordBytes = 64 << 20;
constexpr int kMaxDepth = 24;  // folders below the one that is searched

// ---- values that may be missing or of a different type

const json* member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// JSON has no nan: writers use null or text.
double as_number(const json& value, double otherwise) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return otherwise;
  const std::string& text = value.get_ref<const std::string&>();
  if (text == "inf" || text == ".inf" || text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-inf" || text == "-.inf" || text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return text == "nan" || text == ".nan" || text == "NaN" ? kUnknown : otherwise;
}

void get(const json& object, const char* key, double& value) {
  if (const json* found = member(object, key)) value = as_number(*found, value);
}

// An amount that can be counted: of bytes, samples or seconds. Any other number is unknown.
void get_amount(const json& object, const char* key, double& value) {
  get(object, key, value);
  if (!(value >= 0 && value < 9e18)) value = kUnknown;
}

void get(const json& object, const char* key, int64_t& value) {
  const json* found = member(object, key);
  if (found == nullptr || !found->is_number()) return;
  if (found->is_number_integer()) {
    value = found->get<int64_t>();
  } else if (const double number = found->get<double>(); std::abs(number) < 9e18) {
    value = static_cast<int64_t>(number);
  }
}

void get(const json& object, const char* key, std::string& value) {
  const json* found = member(object, key);
  if (found != nullptr && found->is_string()) value = found->get<std::string>();
}

template <class Use>
void each(const json& object, const char* key, const Use& use) {
  const json* found = member(object, key);
  if (found == nullptr || !found->is_array()) return;
  for (const json& item : *found) use(item);
}

// ---- parts of run.json

RunStatus status_of(const std::string& word) {
  for (const RunStatus status :
       {RunStatus::running, RunStatus::success, RunStatus::failed, RunStatus::interrupted, RunStatus::killed}) {
    if (word == status_word(status)) return status;
  }
  return RunStatus::unknown;
}

void read_place(const json& file, RunRecord& record) {
  get(file, "command", record.command);
  each(file, "argv", [&](const json& word) {
    if (word.is_string()) record.argv.push_back(word.get<std::string>());
  });
  get(file, "host", record.host);
  get(file, "pid", record.pid);
  get(file, "version", record.version);
  get(file, "strategy", record.strategy);
  get(file, "precision", record.precision);
  get(file, "device", record.device);
  get(file, "world_size", record.world_size);
}

void read_progress(const json& file, RunRecord& record) {
  std::string status;
  get(file, "status", status);
  record.status = status_of(status);
  get(file, "error", record.error);
  get(file, "stop_reason", record.stop_reason);
  get(file, "started", record.started);
  get(file, "updated", record.updated);
  get(file, "ended", record.ended);
  get(file, "epoch", record.epoch);
  get(file, "max_epochs", record.max_epochs);
  get(file, "step", record.step);
  get(file, "max_steps", record.max_steps);
  get(file, "total_batches", record.total_batches);
  get(file, "progress", record.progress);
  get_amount(file, "remaining_seconds", record.remaining_seconds);
  get(file, "skipped_steps", record.skipped_steps);
  get(file, "nonfinite_losses", record.nonfinite_losses);
  if (const json* rates = member(file, "rates")) {
    get_amount(*rates, "batches_per_second", record.batches_per_second);
    get_amount(*rates, "samples_per_second", record.samples_per_second);
  }
  each(file, "sessions", [&](const json& item) {
    RunSession session;
    get(item, "started", session.started);
    get(item, "ended", session.ended);
    get(item, "first_step", session.first_step);
    get(item, "status", session.status);
    get(item, "sessions", session.count);
    session.count = std::clamp<int64_t>(session.count, 1, 1'000'000'000);
    record.sessions.push_back(std::move(session));
  });
}

void read_metrics(const json& file, RunRecord& record) {
  if (const json* metrics = member(file, "metrics"); metrics != nullptr && metrics->is_object()) {
    for (const auto& [name, item] : metrics->items()) {
      RunMetric& metric = record.metrics[name];
      get(item, "last", metric.last);
      get(item, "min", metric.min);
      get(item, "max", metric.max);
      get(item, "last_step", metric.last_step);
      get(item, "min_step", metric.min_step);
      get(item, "max_step", metric.max_step);
    }
  }
  const json* monitor = member(file, "monitor");
  if (monitor == nullptr) return;
  get(*monitor, "name", record.monitor);
  get(*monitor, "mode", record.monitor_mode);
  get(*monitor, "best", record.monitor_best);
  get(*monitor, "best_path", record.best_path);
}

void read_times(const json& file, RunRecord& record) {
  if (const json* split = member(file, "time_split"); split != nullptr && split->is_object()) {
    for (const char* known : {"data", "transfer", "forward", "backward", "communication", "optimizer", "callbacks",
                              "validation", "other"}) {  // StepPart
      double seconds = kUnknown;
      get(*split, known, seconds);
      if (seconds >= 0 && std::isfinite(seconds)) record.time_split.emplace_back(known, seconds);
    }
  }
  each(file, "clock", [&](const json& point) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number()) return;
    const double step = point[0].get<double>();
    const double seconds = point[1].get<double>();
    if (!(std::abs(step) < 9e15) || !std::isfinite(seconds)) return;
    const std::pair<int64_t, double> last =
        record.clock.empty() ? std::pair<int64_t, double>(INT64_MIN, seconds) : record.clock.back();
    if (static_cast<int64_t>(step) > last.first && seconds >= last.second) {
      record.clock.emplace_back(static_cast<int64_t>(step), seconds);
    }
  });
}

void read_lists(const json& file, RunRecord& record) {
  each(file, "checkpoints", [&](const json& item) {
    RunCheckpoint checkpoint;
    get(item, "path", checkpoint.path);
    get(item, "step", checkpoint.step);
    get(item, "epoch", checkpoint.epoch);
    get(item, "time", checkpoint.time);
    get(item, "score", checkpoint.score);
    record.checkpoints.push_back(std::move(checkpoint));
  });
  each(file, "ranks", [&](const json& item) {
    RunRank rank;
    get(item, "rank", rank.rank);
    get(item, "host", rank.host);
    get(item, "pid", rank.pid);
    get_amount(item, "memory_bytes", rank.memory_bytes);
    get_amount(item, "peak_memory_bytes", rank.peak_memory_bytes);
    get(item, "stage", rank.stage);
    record.ranks.push_back(std::move(rank));
  });
}

// ---- folders

// Also if it is a FIFO or a device: reading it is an error, which is shown with the run.
bool has_file(const fs::path& folder, const char* name) {
  struct stat found {};
  return ::stat((folder / name).c_str(), &found) == 0 && !S_ISDIR(found.st_mode);
}

double time_of(const std::string& folder, const char* name) {
  struct stat found {};
  if (::stat((fs::path(folder) / name).c_str(), &found) != 0) return kUnknown;
  return static_cast<double>(found.st_mtim.tv_sec) + 1e-9 * static_cast<double>(found.st_mtim.tv_nsec);
}

// A run of a version that wrote no run.json: hparams.yaml is written at its start, metrics.csv until its end.
void read_file_times(RunRecord& record) {
  record.started = time_of(record.folder, "hparams.yaml");
  record.updated = time_of(record.folder, "metrics.csv");
  if (std::isnan(record.updated)) record.updated = record.started;
  if (is_folder_locked(record.folder)) {
    record.status = RunStatus::running;
  } else {
    record.ended = record.updated;
  }
}

// The last sign of life of a run that has recorded no end: metrics.csv may have rows from after run.json's last change.
double last_sign_of_life(const RunRecord& record) {
  const double rows = time_of(record.folder, "metrics.csv");
  return std::isnan(record.updated) || rows > record.updated ? rows : record.updated;
}

// Seconds of training at a step, by the clock; kUnknown where it has no point up to there.
double trained_at(const RunRecord& record, int64_t step) {
  double seconds = kUnknown;
  for (const auto& [at, trained] : record.clock) {
    if (at <= step) seconds = trained;
  }
  return seconds;
}

// A killed process records no end. The last session ended at the run's last sign of life; where an earlier one is still
// open, it has trained at least up to the step from which the next one continued.
void close_killed_sessions(RunRecord& record) {
  for (size_t k = 0; k < record.sessions.size(); ++k) {
    RunSession& session = record.sessions[k];
    const bool is_last = k + 1 == record.sessions.size();
    if (!std::isnan(session.ended) || (is_last && record.status != RunStatus::killed)) continue;
    session.status = status_word(RunStatus::killed);
    if (is_last) {
      session.ended = std::max(record.ended, session.started);
    } else {
      const double before = session.first_step == 0 ? 0 : trained_at(record, session.first_step);
      const double until = session.started + trained_at(record, record.sessions[k + 1].first_step) - before;
      session.ended = std::min(until, record.sessions[k + 1].started);
    }
  }
}

bool is_searched(const std::string& name) {
  return !name.starts_with(".") && name != "checkpoints" && !name.ends_with(".ckpt");
}

void search(const fs::path& folder, int depth, FoundRuns& found) {
  if (is_run_folder(folder.string())) found.folders.push_back(folder.string());
  if (depth >= kMaxDepth) return;
  std::error_code code;
  fs::directory_iterator entry(folder, code);
  if (code) {
    found.unreadable.push_back(folder.string() + ": " + code.message());
    return;
  }
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    std::error_code ignored;
    if (entry->is_symlink(ignored) || !entry->is_directory(ignored)) continue;
    if (is_searched(entry->path().filename().string())) search(entry->path(), depth + 1, found);
  }
}

}  // namespace

const char* status_word(RunStatus status) {
  switch (status) {
    case RunStatus::running: return "running";
    case RunStatus::success: return "success";
    case RunStatus::failed: return "failed";
    case RunStatus::interrupted: return "interrupted";
    case RunStatus::killed: return "killed";
    default: return "";
  }
}

int64_t RunRecord::session_count() const {
  int64_t count = 0;
  for (const RunSession& session : sessions) count += session.count;
  return count;
}

double RunRecord::duration() const {
  const double last = std::isnan(ended) ? updated : ended;
  if (sessions.empty()) return last >= started ? last - started : kUnknown;
  double sum = 0;
  for (size_t k = 0; k < sessions.size(); ++k) {
    double until = sessions[k].ended;
    if (std::isnan(until) && k + 1 == sessions.size()) until = last;
    if (until >= sessions[k].started) sum += until - sessions[k].started;
  }
  return sum;
}

bool is_run_folder(const std::string& folder) {
  return has_file(folder, "run.json") || (has_file(folder, "metrics.csv") && has_file(folder, "hparams.yaml"));
}

FoundRuns find_run_folders(const std::string& folder) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) {
    throw Error(cut_text(folder, 200) +
                (code || !fs::exists(folder, code) ? ": the folder does not exist." : ": it is a file, not a folder.") +
                " Name a folder that has runs below it, e.g. levin_logs.");
  }
  FoundRuns found;
  search(fs::path(folder), 0, found);
  std::sort(found.folders.begin(), found.folders.end(), natural_less);
  return found;
}

std::vector<std::string> distinct_folders(const std::vector<std::string>& folders) {
  std::vector<std::string> once;
  std::set<fs::path> seen;
  for (const auto& folder : folders) {
    std::error_code code;
    if (seen.insert(fs::weakly_canonical(folder, code)).second) once.push_back(folder);
  }
  return once;
}

RunRecord read_run_record(const std::string& folder) {
  RunRecord record;
  record.folder = folder;
  record.name = fs::path(folder).lexically_normal().string();
  if (record.name.ends_with('/')) record.name.pop_back();
  const std::string path = (fs::path(folder) / "run.json").string();
  if (!has_file(folder, "run.json")) {
    read_file_times(record);
    return record;
  }
  try {
    const json file = json::parse(read_file(path, kMaxRecordBytes), nullptr, /*allow_exceptions=*/false);
    if (!file.is_object()) throw Error(path + ": expected a JSON object");
    read_place(file, record);
    read_progress(file, record);
    read_metrics(file, record);
    read_times(file, record);
    read_lists(file, record);
    record.has_record = true;
  } catch (const Error& error) {
    record.unreadable = error.what();
    read_file_times(record);
  }
  const bool says_running = record.has_record && record.status == RunStatus::running;
  if (says_running && !is_run_alive(folder, record.host, record.pid, record.updated)) {
    record.status = RunStatus::killed;
    record.ended = last_sign_of_life(record);
  }
  close_killed_sessions(record);
  return record;
}

bool natural_less(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i, ++j;
      continue;
    }
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    const size_t first_i = i;
    const size_t first_j = j;
    while (i < a.size() && is_digit(a[i])) ++i;
    while (j < b.size() && is_digit(b[j])) ++j;
    if (i - first_i != j - first_j) return i - first_i < j - first_j;
    const int order =
        std::string_view(a).substr(first_i, i - first_i).compare(std::string_view(b).substr(first_j, j - first_j));
    if (order != 0) return order < 0;
  }
  if (i < a.size() || j < b.size()) return i >= a.size();
  return a < b;  // "01" and "1"
}

}  // namespace levin
