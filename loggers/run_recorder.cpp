#include "levin/loggers/run_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/files/write_remedy.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/staging.h"
#include "levin/core/version.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxClockPoints = 512;
constexpr size_t kMaxSessions = 100;
constexpr double kRateWindow = 10;  // seconds over which rates are averaged
constexpr uint64_t kMaxBytes = 16 << 20;

using OrderedJson = nlohmann::ordered_json;

// JSON has no nan and no infinity.
OrderedJson number_or_null(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson();
}

OrderedJson or_null(const std::optional<double>& value) {
  return value ? number_or_null(*value) : OrderedJson();
}

// Returns the fallback for a missing or invalid value, which must not cost the rest of the record.
template <class T>
T read_or(const OrderedJson& object, const char* key, T fallback) {
  try {
    return object.at(key).get<T>();
  } catch (const std::exception&) {
    return fallback;
  }
}

// nan was written as null.
double read_number(const OrderedJson& object, const char* key) {
  return read_or(object, key, std::numeric_limits<double>::quiet_NaN());
}

std::string record_path(const std::string& folder) {
  return (fs::path(folder) / "run.json").string();
}

// An earlier session with the status "running" was killed, as a new session has the folder now. It ended when it last
// wrote.
void close_killed(OrderedJson& sessions, const OrderedJson& updated) {
  if (sessions.empty() || read_or<std::string>(sessions.back(), "status", "") != "running") return;
  sessions.back()["status"] = "killed";
  sessions.back()["ended"] = updated;
}

// Joins the two oldest sessions into one that lasted as long as both, without the time between them, until `most` are
// left: a program may call fit without end in one folder.
void join_oldest(OrderedJson& sessions, size_t most) {
  const auto seconds = [](const OrderedJson& session) {
    return std::max(0.0, read_or(session, "ended", 0.0) - read_or(session, "started", 0.0));
  };
  while (sessions.size() > most) {
    OrderedJson& first = sessions[0];
    const OrderedJson& second = sessions[1];
    const int64_t count = read_or(first, "sessions", int64_t{1}) + read_or(second, "sessions", int64_t{1});
    first["ended"] = read_or(first, "started", 0.0) + seconds(first) + seconds(second);
    first["status"] = second["status"];
    first["sessions"] = count;
    sessions.erase(1);
  }
}

// Returns the objects of a list that have a string member `text`; other items count as absent.
OrderedJson objects_in(const OrderedJson& record, const char* key, const char* text) {
  const OrderedJson list = read_or(record, key, OrderedJson::array());
  OrderedJson objects = OrderedJson::array();
  for (const OrderedJson& item : list) {
    if (list.is_array() && item.is_object() && item.contains(text) && item[text].is_string()) objects.push_back(item);
  }
  return objects;
}

OrderedJson usage_node(const RankUsage& usage) {
  return {{"rank", usage.rank},
          {"host", usage.host},
          {"pid", usage.pid},
          {"stage", usage.stage},
          {"memory_bytes", usage.memory_bytes},
          {"peak_memory_bytes", usage.peak_memory_bytes}};
}

// Replaces the file, without waiting for the disk: it is written every second, and a reader sees the old or the new.
void replace_file(const std::string& path, const std::string& text) {
  check_replaceable(path);
  const std::string made = temporary_name(path);
  std::ofstream file(made, std::ios::binary);
  file << text;
  file.close();
  std::error_code code;
  if (file) fs::rename(made, path, code);
  if (!file || code) {
    const int cause = code ? code.value() : errno;
    fs::remove(made, code);
    throw Error(path + ": cannot write it: " + system_error_text(cause) + ". " + write_remedy(cause));
  }
}

}  // namespace

std::string RunRecorder::usage_path(const std::string& folder, int64_t rank) {
  return (fs::path(folder) / (".rank" + std::to_string(rank) + ".json")).string();
}

void RunRecorder::write_usage(const std::string& folder, const RankUsage& usage) {
  try {
    replace_file(usage_path(folder, usage.rank), usage_node(usage).dump());
  } catch (const Error&) {
    // rank 0 reports a folder that cannot be written
  }
}

void RunRecorder::log_metrics(const MetricList& metrics, const LogPoint& at) {
  for (const auto& [name, value] : metrics) {
    if (name == "epoch") continue;
    const auto [found, is_new] = metrics_.try_emplace(name, Seen{value, at.step, value, at.step, value, at.step});
    Seen& seen = found->second;
    seen.last = value;
    seen.last_step = at.step;
    if (value < seen.min || std::isnan(seen.min)) seen.min = value, seen.min_step = at.step;
    if (value > seen.max || std::isnan(seen.max)) seen.max = value, seen.max_step = at.step;
  }
}

std::string recorded_command(const std::string& folder) {
  std::error_code code;
  if (!fs::exists(record_path(folder), code)) fetch_staged(record_path(folder));
  if (!fs::exists(record_path(folder), code)) return "";
  try {
    return read_or<std::string>(parse_json<OrderedJson>(read_file(record_path(folder), kMaxBytes)), "command", "");
  } catch (const std::exception&) {
    return "";  // it is reported when a run writes there
  }
}

void RunRecorder::begin(const RunProgress& status, bool continues) {
  started_ = status.started;
  first_step_ = status.step;
  std::error_code code;
  if (fs::exists(record_path(folder_), code)) read_earlier(status);
  fits_here_ = fits_here_ || status.command == "fit";
  if (continues || !writes_) return;
  sessions_ = checkpoints_ = Json::array();
  evaluated_.clear();
  metrics_.clear();
  clock_.clear();
  split_before_.clear();
  trained_before_ = 0;
  started_ = status.started;
}

// Unreadable or invalid parts count as absent.
void RunRecorder::read_earlier(const RunProgress& status) {
  try {
    const Json earlier = parse_json<Json>(read_file(record_path(folder_), kMaxBytes));
    writes_ = status.command == "fit" || read_or<std::string>(earlier, "command", "") != "fit";
    started_ = read_or(earlier, "started", started_);
    sessions_ = objects_in(earlier, "sessions", "status");
    close_killed(sessions_, read_or(earlier, "updated", Json()));
    join_oldest(sessions_, kMaxSessions - 1);
    checkpoints_ = objects_in(earlier, "checkpoints", "path");
    trained_before_ = read_or(earlier, "trained_seconds", 0.0);
    split_before_ = read_or(earlier, "time_split", std::map<std::string, double>());
    clock_ = read_or(earlier, "clock", clock_);
    const Json metrics = read_or(earlier, "metrics", Json::object());  // items() refers to it
    for (const auto& [name, seen] : metrics.items()) {
      if (!seen.is_object()) continue;
      metrics_[name] = {read_number(seen, "last"), read_or(seen, "last_step", int64_t{0}),
                        read_number(seen, "min"),  read_or(seen, "min_step", int64_t{0}),
                        read_number(seen, "max"),  read_or(seen, "max_step", int64_t{0})};
    }
  } catch (const std::exception&) {
    sessions_ = checkpoints_ = Json::array();
  }
}

// A run's folder may be moved: what is in it is named from there.
std::string RunRecorder::below_folder(const std::string& path) const {
  if (path.empty()) return path;
  const fs::path below = fs::absolute(path).lexically_relative(fs::absolute(folder_).lexically_normal());
  return below.empty() || *below.begin() == ".." ? path : below.string();
}

void RunRecorder::add_checkpoint(const SavedCheckpoint& checkpoint) {
  const std::string name = below_folder(checkpoint.path);
  for (size_t k = 0; k < checkpoints_.size(); ++k) {  // last.ckpt is written again and again
    if (checkpoints_[k].value("path", "") == name) checkpoints_.erase(k--);
  }
  checkpoints_.push_back({{"path", name},
                          {"step", checkpoint.step},
                          {"epoch", checkpoint.epoch},
                          {"time", checkpoint.time},
                          {"score", or_null(checkpoint.score)}});
}

// Points at equal distances of time; where there are too many, every second one is dropped.
void RunRecorder::note_clock(const RunProgress& status) {
  const double seconds = trained_before_ + status.trained_seconds;
  while (!clock_.empty() && clock_.back().first >= status.windows) clock_.pop_back();  // resumed before them
  if (!clock_.empty() && seconds - clock_.back().second < clock_spacing_ && status.status == "running") return;
  clock_.emplace_back(status.windows, seconds);
  if (clock_.size() <= kMaxClockPoints) return;
  for (size_t k = 1; 2 * k < clock_.size(); ++k) clock_[k] = clock_[2 * k];
  clock_.resize((clock_.size() + 1) / 2);
  clock_spacing_ = 2 * (clock_.back().second - clock_.front().second) / static_cast<double>(kMaxClockPoints);
}

void RunRecorder::note_rate(const RunProgress& status) {
  marks_.push_back({status.now, status.total_batches, status.samples});
  size_t old = 0;
  while (old + 2 < marks_.size() && marks_[old + 1].time < status.now - kRateWindow) ++old;
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<int64_t>(old));
}

RunRecorder::Json RunRecorder::metrics_node() const {
  Json all = Json::object();
  for (const auto& [name, seen] : metrics_) {
    all[name] = {{"last", number_or_null(seen.last)}, {"last_step", seen.last_step},
                 {"min", number_or_null(seen.min)},   {"min_step", seen.min_step},
                 {"max", number_or_null(seen.max)},   {"max_step", seen.max_step}};
  }
  return all;
}

// Callbacks remove files that are no longer among the best. They are forgotten here too, or the list, and the time for
// a look at its files, would grow with every save.
void RunRecorder::forget_removed_checkpoints() {
  Json existing = Json::array();
  std::error_code code;
  for (Json& checkpoint : checkpoints_) {
    if (fs::exists(fs::path(folder_) / checkpoint.value("path", ""), code)) existing.push_back(std::move(checkpoint));
  }
  checkpoints_ = std::move(existing);
}

RunRecorder::Json RunRecorder::ranks_node(const RunProgress& status) const {
  Json all = Json::array({usage_node(status.own)});
  for (int64_t rank = 1; rank < status.world_size; ++rank) {
    std::error_code code;
    if (!fs::exists(usage_path(folder_, rank), code)) continue;
    try {
      Json usage = parse_json<Json>(read_file(usage_path(folder_, rank), kMaxBytes));
      if (usage.is_object()) all.push_back(std::move(usage));
    } catch (const std::exception&) {
      continue;
    }
  }
  return all;
}

RunRecorder::Json RunRecorder::content(const RunProgress& status) const {
  const bool ended = status.status != "running";
  Json sessions = sessions_;
  sessions.push_back({{"started", status.started},
                      {"ended", ended ? Json(status.now) : Json()},
                      {"first_step", first_step_},
                      {"status", status.status}});
  std::map<std::string, double> split = split_before_;
  for (const auto& [part, seconds] : status.time_split) split[part] += seconds;
  const Mark& from = marks_.front();
  const double span = status.now - from.time;
  const auto rate = [&](int64_t count) { return span > 0 ? Json(static_cast<double>(count) / span) : Json(); };
  Json remaining;
  if (status.progress && status.progress_at_start && *status.progress > *status.progress_at_start && !ended) {
    const double done = *status.progress - *status.progress_at_start;
    remaining = (1 - *status.progress) / done * (status.now - status.started);
  }
  const auto limit = [](int64_t value) { return value < 0 ? Json() : Json(value); };
  return {{"format", 1},
          {"command", status.command},
          {"argv", own_command_line()},
          {"status", status.status},
          {"error", status.error},
          {"stop_reason", status.stop_reason},
          {"started", started_},
          {"updated", status.now},
          {"ended", ended ? Json(status.now) : Json()},
          {"sessions", sessions},
          {"host", status.own.host},
          {"pid", status.own.pid},
          {"version", version()},
          {"strategy", status.strategy},
          {"precision", status.precision},
          {"device", status.device},
          {"world_size", status.world_size},
          {"epoch", status.epoch},
          {"max_epochs", limit(status.max_epochs)},
          {"step", status.step},
          {"max_steps", limit(status.max_steps)},
          {"total_batches", status.total_batches},
          {"progress", or_null(status.progress)},
          {"remaining_seconds", remaining},
          {"trained_seconds", trained_before_ + status.trained_seconds},
          {"metrics", metrics_node()},
          {"monitor",
           {{"name", status.monitor},
            {"mode", status.monitor_mode},
            {"best", or_null(status.best_score)},
            {"best_path", below_folder(status.best_path)}}},
          {"checkpoints", checkpoints_},
          {"skipped_steps", status.skipped_steps},
          {"nonfinite_losses", status.nonfinite_losses},
          {"rates",
           {{"batches_per_second", rate(status.total_batches - from.batches)},
            {"samples_per_second", rate(status.samples - from.samples)}}},
          {"time_split", split},
          {"clock", clock_},
          {"ranks", ranks_node(status)}};
}

void RunRecorder::write(const RunProgress& status) {
  if (!writes_) return add_evaluation(status);
  note_clock(status);
  note_rate(status);
  forget_removed_checkpoints();
  replace(content(status));
}

// Such as the test after a fit: what it has measured belongs to the run. A metric of the fit stays the fit's.
void RunRecorder::add_evaluation(const RunProgress& status) {
  if (!fits_here_ || status.status == "running") return;
  try {
    Json record = parse_json<Json>(read_file(record_path(folder_), kMaxBytes));
    Json& known = record["metrics"];
    const Json measured = metrics_node();  // items() refers to it
    for (const auto& [name, seen] : measured.items()) {
      if (known.contains(name) && !evaluated_.contains(name)) continue;
      known[name] = seen;
      evaluated_.insert(name);
    }
    replace(record);
  } catch (const std::exception&) {
    // a record that cannot be read has been reported, or is another program's
  }
}

void RunRecorder::replace(const Json& content) {
  try {
    // Names and messages may contain bytes that are not UTF-8.
    replace_file(record_path(folder_), content.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    failing_ = false;
  } catch (const Error& error) {
    if (!failing_) Console::instance().warn(std::string(error.what()) + " levin runs and levin top need it.");
    failing_ = true;
  }
}

}  // namespace levin
