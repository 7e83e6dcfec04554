#include "levin/loggers/mlflow_logger.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/loggers/flat_options.h"
#include "levin/loggers/logger_folder.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxMetricsOfEvent = 500;
constexpr size_t kMaxPairsOfEvent = 50;
constexpr Seconds kPatienceInterrupted = Seconds(10);
constexpr size_t kMaxNameBytes = 250;    // MLflow's limits
constexpr size_t kMaxValueBytes = 6000;  //

std::string random_id() {
  std::random_device random;
  std::string text;
  for (int k = 0; k < 4; ++k) {
    const std::string part = std::to_string(random());
    text += std::string(10 - std::min<size_t>(10, part.size()), '0') + part;
  }
  return text;
}

int64_t milliseconds_of(double time) {
  return static_cast<int64_t>((time > 0 ? time : seconds_since_1970()) * 1000);
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON lacks nan and infinity; MLflow reads them as strings.
Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string command_name() {
  const std::vector<std::string> words = own_command_line();
  return words.empty() ? "" : words[0];
}

// A name as a path below the run's files: no "..", no absolute path.
std::string artifact_path(const std::string& name) {
  std::string path;
  for (const fs::path& part : fs::path(name).lexically_normal()) {
    const std::string text = part.string();
    if (text.empty() || text == "/" || text == "." || text == "..") continue;
    path += (path.empty() ? "" : "/") + text;
  }
  return path.empty() ? "file" : path;
}

std::string whole_characters(std::string text, size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xC0) == 0x80) --most_bytes;
  text.resize(most_bytes);
  return text;
}

}  // namespace

MLFlowLogger::MLFlowLogger(MLFlowLoggerOptions options)
    : options_(checked(std::move(options), "MLFlowLoggerOptions")) {}

MLFlowLogger::~MLFlowLogger() {
  outbox_.reset();
}

uint32_t MLFlowLogger::takes() const {
  return LogKind::scalars | LogKind::hyperparameters | LogKind::text | LogKind::tables | LogKind::artifacts |
         LogKind::system;
}

std::string MLFlowLogger::experiment_folder(const std::string& default_root_dir) const {
  return (fs::path(options_.save_dir.empty() ? default_root_dir : options_.save_dir) / "mlflow_logs").string();
}

void MLFlowLogger::start_in(const std::string& folder) {
  const Variables variables = process_variables();
  const bool from_environment = options_.tracking_uri.empty();
  const SplitUrl url =
      split_credentials(from_environment ? variables("MLFLOW_TRACKING_URI").value_or("") : options_.tracking_uri);
  if (url.url.empty())
    throw ConfigError(
        "MLFlowLogger: no server. Set tracking_uri, or the environment variable MLFLOW_TRACKING_URI, to "
        "the URL of an MLflow server, e.g. http://127.0.0.1:5000 (mlflow server starts one).");
  if (!url.url.starts_with("http://") && !url.url.starts_with("https://"))
    throw ConfigError("MLFlowLogger: the tracking URI " + cut_text(url.url) +
                      " is not the http or https URL of a server. Levin sends to a server only: start one on the same "
                      "store with mlflow server --backend-store-uri, and name its URL.");
  if (!from_environment && (!url.user.empty() || !url.password.empty()))
    throw ConfigError(
        "MLFlowLogger: tracking_uri contains a user or a password, which would be written to config.yaml "
        "and checkpoints. Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead.");
  credentials_ = mlflow_credentials(variables, url.url, NamedBy::user, "MLFlowLogger");
  run_.tracking_uri = url.url;
  log_dir_ = folder;
  make_folder(log_dir_);
}

void MLFlowLogger::start(const std::string& default_root_dir, bool resume) {
  if (!log_dir_.empty()) return;
  const std::string all = experiment_folder(default_root_dir);
  start_in(resume ? folder_to_resume(all) : claim_run_folder(all));
}

void MLFlowLogger::start_again(const std::string& default_root_dir, bool resume) {
  const std::string own = log_dir_.empty() ? folder_of_job(experiment_folder(default_root_dir)) : "";
  own.empty() ? start(default_root_dir, resume) : start_in(own);
}

std::vector<std::string> MLFlowLogger::earlier_log_dirs() const {
  return earlier_folders(log_dir_);
}

void MLFlowLogger::own_folder() {
  mark_job(log_dir_);
  if (outbox_ == nullptr) make_outbox();
  if (!std::exchange(is_open_, true)) push_status("RUNNING");
}

// Sending begins with the first value: before it, load_state_dict may remove what an earlier session has left.
void MLFlowLogger::push(const std::string& members, int64_t values) {
  outbox_->start();
  outbox_->push(members, values);
}

void MLFlowLogger::make_outbox() {
  const std::string uri = run_.tracking_uri;
  const auto before = read_mlflow_run(log_dir_);
  run_ = before.value_or(MlflowRun{});
  run_.tracking_uri = uri;  // the server may have moved
  if (!before) {
    run_.uuid = random_id();
    run_.experiment_name = options_.experiment_name;
    run_.artifact_location = options_.artifact_location;
    run_.run_name = options_.run_name;
    run_.start_time = milliseconds_of(0);
    const Variables variables = process_variables();
    run_.tags = {{"mlflow.user", variables("USER").value_or(std::to_string(::getuid()))},
                 {"mlflow.source.name", command_name()},
                 {"mlflow.source.type", "LOCAL"}};
    for (const auto& [key, value] : options_.tags) run_.tags[key] = value;
  }
  if (!options_.run_id.empty()) run_.run_id = options_.run_id;
  write_mlflow_run(log_dir_, run_);
  client_ = std::make_shared<MlflowClient>(log_dir_, run_, credentials_,
                                           MlflowTimeouts{options_.connect_timeout, options_.timeout});
  OutboxOptions options;
  options.who = "MLFlowLogger";
  options.where = "the server " + run_.tracking_uri;
  options.most_bytes = options_.max_spill.bytes;
  outbox_ = std::make_shared<Outbox>(
      log_dir_, options, [client = client_.get()](std::span<const SpilledEvent> events, const auto& cancelled) {
        return client->deliver(events, cancelled);
      });
}

// MLflow takes letters, digits and "_-. :/"; a name that looks like a path must be a plain one. Two names that become
// the same are told apart by a number.
std::string MLFlowLogger::allowed_name(const std::string& name) {
  if (const auto known = sent_as_.find(name); known != sent_as_.end()) return known->second;
  std::string allowed;
  for (const char c : whole_characters(name, kMaxNameBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool good =
        byte >= 0x80 || std::isalnum(byte) != 0 || std::string_view("_-. :/").find(c) != std::string_view::npos;
    const bool doubled = c == '/' && (allowed.empty() || allowed.back() == '/');
    if (!doubled) allowed += good ? c : '_';
  }
  while (allowed.ends_with('/')) allowed.pop_back();
  if (fs::path(allowed).lexically_normal().string() != allowed || allowed.starts_with("..") || allowed == ".")
    std::replace(allowed.begin(), allowed.end(), '/', '_');
  if (allowed.empty() || allowed == "." || allowed == "..") allowed = "_";
  const std::string wished = allowed;
  for (int64_t number = 2; taken_.contains(allowed); ++number) {  // a different name became the same
    const std::string suffix = "_" + std::to_string(number);
    const std::string tried = whole_characters(allowed, kMaxNameBytes - suffix.size()) + suffix;
    if (!taken_.contains(tried)) allowed = tried;
  }
  sent_as_[name] = allowed;
  taken_.insert(allowed);
  if (wished == name && allowed != name)
    Console::instance().warn("MLFlowLogger: a different name is sent as \"" + cut_text(wished) + "\"; \"" +
                             cut_text(name) + "\" is sent as \"" + cut_text(allowed) + "\".");
  if (wished != name)
    Console::instance().warn("MLFlowLogger: MLflow does not take the name \"" + cut_text(name) +
                             "\"; it is sent as \"" + cut_text(allowed) + "\".");
  return allowed;
}

void MLFlowLogger::push_metrics(const MetricList& metrics, const LogPoint& at, const std::string& prefix) {
  for (size_t begin = 0; begin < metrics.size(); begin += kMaxMetricsOfEvent) {
    Json items = Json::array();
    for (size_t k = begin; k < std::min(metrics.size(), begin + kMaxMetricsOfEvent); ++k)
      items.push_back({allowed_name(prefix + metrics[k].first), json_number(metrics[k].second)});
    push("\"k\":\"metrics\",\"step\":" + std::to_string(at.step) +
             ",\"t\":" + std::to_string(milliseconds_of(at.time)) + ",\"i\":" + dumped(items),
         static_cast<int64_t>(items.size()));
  }
}

void MLFlowLogger::log_metrics(const MetricList& metrics, const LogPoint& at) {
  push_metrics(metrics, at, options_.prefix.empty() ? "" : options_.prefix + "-");
}

void MLFlowLogger::log_system(const MetricList& measurements, const LogPoint& at) {
  push_metrics(measurements, at, "system/");
}

void MLFlowLogger::push_pairs(const char* kind, const std::vector<std::pair<std::string, std::string>>& pairs) {
  for (size_t begin = 0; begin < pairs.size(); begin += kMaxPairsOfEvent) {
    Json items = Json::array();
    for (size_t k = begin; k < std::min(pairs.size(), begin + kMaxPairsOfEvent); ++k) {
      if (pairs[k].second.size() > kMaxValueBytes)
        Console::instance().warn("MLFlowLogger: the value of \"" + cut_text(pairs[k].first) +
                                 "\" is cut to MLflow's limit of " + std::to_string(kMaxValueBytes) + " bytes.");
      items.push_back({allowed_name(pairs[k].first), whole_characters(pairs[k].second, kMaxValueBytes)});
    }
    push(std::string("\"k\":\"") + kind + "\",\"i\":" + dumped(items), static_cast<int64_t>(items.size()));
  }
}

void MLFlowLogger::log_hyperparams(const ConfigNode& hparams) {
  push_pairs("params", flat_options(hparams));
}

void MLFlowLogger::push_text(const std::string& to, const std::string& text) {
  push("\"k\":\"text\",\"to\":" + dumped(to) + ",\"text\":" + dumped(text), 1);
}

void MLFlowLogger::log_text(const std::string& name, const std::string& text, const LogPoint& at) {
  push_text(artifact_path("texts/" + name) + "/" + std::to_string(at.step) + ".md", text);
}

void MLFlowLogger::log_table(const std::string& name, const LogTable& table, const LogPoint& at) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const auto& cell : row)
      cells.push_back(std::holds_alternative<double>(cell) ? json_number(std::get<double>(cell))
                                                           : Json(std::get<std::string>(cell)));
    rows.push_back(std::move(cells));
  }
  push_text(artifact_path("tables/" + name) + "/" + std::to_string(at.step) + ".json",
            dumped({{"columns", table.columns}, {"data", std::move(rows)}}));
}

// A second name of the file, so that it can be sent after the run has removed or replaced it; a copy where the file
// system has no second names.
void MLFlowLogger::push_file(const std::string& to, const std::string& path) {
  const std::string folder = (fs::path(log_dir_) / "outbox_files").string();
  std::error_code code;
  if (fs::is_symlink(fs::symlink_status(folder, code))) {
    return Console::instance().warn("MLFlowLogger: " + folder + " is a symbolic link, and nothing is kept there: " +
                                    path + " is left out. Remove the link.");
  }
  make_folder(folder);
  std::string own;
  do {
    own = "outbox_files/" + std::to_string(milliseconds_of(0)) + "-" + std::to_string(copies_++);
  } while (fs::exists(fs::path(log_dir_) / own, code));
  // Of the file itself: a second name of a link such as last.ckpt would lead nowhere from this folder.
  const fs::path source = fs::canonical(path, code);
  if (!code) fs::create_hard_link(source, fs::path(log_dir_) / own, code);
  if (code) fs::copy_file(path, fs::path(log_dir_) / own, code);
  if (code) {
    return Console::instance().warn("MLFlowLogger: " + path +
                                    " cannot be kept for sending, and is left out: " + code.message() + ".");
  }
  push("\"k\":\"file\",\"to\":" + dumped(to) + ",\"file\":" + dumped(own), 1);
}

void MLFlowLogger::log_artifact(const std::string& name, const std::string& path, const LogPoint&) {
  const std::string to = artifact_path(name.empty() ? fs::path(path).filename().string() : name);
  std::error_code code;
  const bool is_checkpoint = fs::path(path).extension() == ".ckpt";
  if (is_checkpoint && options_.log_model == LogModel::none) return;
  if (is_checkpoint && options_.log_model == LogModel::last) {
    checkpoints_[to] = path;
    return;
  }
  if (!fs::is_directory(path, code)) return push_file(to, path);
  for (const auto& entry : fs::recursive_directory_iterator(path, code)) {
    if (entry.is_regular_file(code))
      push_file(to + "/" + entry.path().lexically_relative(path).generic_string(), entry.path().string());
  }
}

void MLFlowLogger::push_status(const std::string& status) {
  outbox_->push("\"k\":\"status\",\"status\":" + dumped(status) + ",\"t\":" + std::to_string(milliseconds_of(0)), 0);
}

State MLFlowLogger::state_dict() const {
  State state;
  state.set("run", run_.uuid);
  state.set("events", outbox_ == nullptr ? int64_t{0} : outbox_->last_number());
  state.set("names", sent_as_);
  return state;
}

void MLFlowLogger::load_state_dict(const State& saved) {
  if (outbox_ == nullptr) return;
  if (!saved.empty() && saved.get<std::string>("run") != run_.uuid) return;  // another run's checkpoint
  if (saved.has("names")) sent_as_ = saved.get<std::map<std::string, std::string>>("names");
  for (const auto& [name, sent] : sent_as_) taken_.insert(sent);
  const int64_t number = saved.empty() ? 0 : saved.get<int64_t>("events");
  outbox_->cut(number, [](const SpilledEvent& event) {
    const Json json = Json::parse(event.line, nullptr, false);
    const auto kind = json.is_object() ? json.find("k") : json.end();  // of any type, if the file is damaged
    return kind != json.end() && (*kind == "metrics" || *kind == "text");
  });
}

std::vector<std::string> MLFlowLogger::files() const {
  return {(fs::path(log_dir_) / "mlflow.json").string()};
}

void MLFlowLogger::save() {
  if (outbox_ != nullptr) outbox_->sync();
}

void MLFlowLogger::finalize(const std::string& status) {
  if (outbox_ == nullptr || !is_open_) return;
  is_open_ = false;
  std::error_code code;
  for (const auto& [to, path] : std::exchange(checkpoints_, {})) {
    if (!fs::exists(path, code)) continue;
    const LogModel before = std::exchange(options_.log_model, LogModel::all);
    log_artifact(to, path, {});
    options_.log_model = before;
  }
  outbox_->start();
  push_status(status == "success" ? "FINISHED" : status == "interrupted" ? "KILLED" : "FAILED");
  // Whoever interrupts a run waits for its end, and may soon kill it.
  report(outbox_->finish(status == "interrupted" ? std::min(options_.finish_timeout, kPatienceInterrupted)
                                                 : options_.finish_timeout));
}

void MLFlowLogger::report(const OutboxReport& left) {
  const std::string server = "the server " + run_.tracking_uri;
  if (left.dropped > 0)
    Console::instance().error("MLFlowLogger: " + count_of(left.dropped, "value") + " found no room in " +
                              outbox_->path() + " while " + server + " did not take them, and " +
                              (left.dropped == 1 ? "is" : "are") + " lost. Raise max_spill.");
  if (left.refused > 0)
    Console::instance().error("MLFlowLogger: " + server + " refused " + count_of(left.refused, "value") +
                              " of this run.");
  if (left.damaged > 0)
    Console::instance().error("MLFlowLogger: " + count_of(left.damaged, "value") + " of this run could not be sent.");
  if (left.problem.empty() && left.waiting == 0) return;
  Console::instance().error("MLFlowLogger: " + count_of(left.waiting, "value was", "values were") + " not sent to " +
                            server + (left.problem.empty() ? " in time." : ": " + left.problem) + " They are kept in " +
                            outbox_->path() + ". The next resume of this run sends them, or: levin runs send " +
                            log_dir_);
}

}  // namespace levin
