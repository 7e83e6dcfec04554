#include "levin/loggers/prometheus_logger.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/loggers/logger_folder.h"

namespace levin {

namespace {

// Backslash, quote and line end are escaped; what is not UTF-8 would make the whole file invalid.
std::string escaped_label(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const char c = text[at];
    if (length == 0) {
      out += '?';
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else {
      out.append(text, at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return out;
}

std::string escaped_help(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? std::string("\\\\") : c == '\n' ? std::string("\\n") : std::string(1, c);
  return out;
}

std::string sample_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return number_text(value);
}

}  // namespace

std::string prometheus_text(const std::vector<PrometheusGauge>& gauges) {
  std::string text;
  for (const PrometheusGauge& gauge : gauges) {
    if (gauge.samples.empty()) continue;
    text += "# HELP " + gauge.name + " " + escaped_help(gauge.help) + "\n# TYPE " + gauge.name + " gauge\n";
    for (const auto& [labels, value] : gauge.samples) {
      std::string inside;
      for (const auto& [name, label] : labels)
        inside += (inside.empty() ? "" : ",") + name + "=\"" + escaped_label(label) + "\"";
      text += gauge.name + (inside.empty() ? "" : "{" + inside + "}") + " " + sample_value(value) + "\n";
    }
  }
  return text;
}

namespace fs = std::filesystem;

namespace {

// Of what log_status is given: its name there, the gauge's, and the gauge's meaning.
struct ProgressGauge {
  const char* key;
  const char* name;
  const char* help;
};
constexpr ProgressGauge kProgress[] = {
    {"epoch", "epoch", "Completed epochs."},
    {"global_step", "global_step", "Optimizer steps taken."},
    {"progress", "progress_ratio", "The completed fraction of the run, 0 to 1."},
    {"skipped_steps", "skipped_steps", "Optimizer steps that were skipped, as their gradients were not finite."},
    {"batches_per_second", "batches_per_second", "Batches of training a second."},
    {"samples_per_second", "samples_per_second", "Samples of training a second, of all ranks."},
    {"checkpoint_time", "checkpoint_timestamp_seconds",
     "When the newest checkpoint was saved, in seconds since 1970."}};

}  // namespace

PrometheusLogger::PrometheusLogger(PrometheusLoggerOptions options)
    : options_(checked(std::move(options), "PrometheusLoggerOptions")), timer_([this] {
        const std::lock_guard lock(mutex_);
        write_file();
      }) {}

PrometheusLogger::~PrometheusLogger() {
  timer_.stop();
}

void PrometheusLogger::start(const std::string& default_root_dir, bool) {
  if (!path_.empty()) return;
  path_ = path_of_only_file("PrometheusLogger", options_.path, default_root_dir, "levin.prom");
  fs::path folder = absolute_path(default_root_dir);
  if (folder.filename().empty()) folder = folder.parent_path();
  run_ = options_.name.empty() ? folder.filename().string() : options_.name;
}

void PrometheusLogger::own_folder() {
  const std::lock_guard lock(mutex_);
  status_ = "running";
  changed();
}

void PrometheusLogger::changed() {
  logged_ = seconds_since_1970();
  if (!std::exchange(is_stale_, true)) timer_.arm(options_.every);
}

void PrometheusLogger::log_metrics(const MetricList& metrics, const LogPoint& at) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, value] : metrics) metrics_[name] = value;
  const bool is_first = std::exchange(step_, static_cast<double>(at.step)) < 0;
  changed();
  if (is_first) write_file();
}

void PrometheusLogger::log_system(const MetricList& measurements, const LogPoint&) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, value] : measurements) measurements_[name] = value;
  changed();
}

void PrometheusLogger::log_status(const MetricList& measurements, const LogPoint& at) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, value] : measurements) progress_[name] = value;
  step_ = std::max(step_, static_cast<double>(at.step));
  changed();
}

std::vector<PrometheusGauge> PrometheusLogger::gauges() const {
  const PrometheusGauge::Labels run = {{"run", run_}};
  const bool is_active = status_ == "running";
  std::vector<PrometheusGauge> all;
  const auto add = [&](const std::string& name, const std::string& help, double value) {
    all.push_back({"levin_" + name, help, {{run, value}}});
  };
  add("active", "Whether the run is active (1) or has ended (0).", is_active ? 1 : 0);
  PrometheusGauge status{"levin_status", "The run's status: 1 for the one it has.", {}};
  for (const char* name : {"running", "success", "failed", "interrupted"})
    status.samples.push_back({{{"run", run_}, {"status", name}}, status_ == name ? 1.0 : 0.0});
  all.push_back(std::move(status));
  add("logged_timestamp_seconds", "When the newest of these values was logged, in seconds since 1970.", logged_);
  if (step_ >= 0) add("step", "Completed accumulation windows, counted from 0.", step_);
  PrometheusGauge metrics{"levin_metric", "The newest value of a metric that the run has logged.", {}};
  for (const auto& [name, value] : metrics_) {
    if (name != "epoch") metrics.samples.push_back({{{"run", run_}, {"name", name}}, value});
  }
  all.push_back(std::move(metrics));
  for (const auto& [key, name, help] : kProgress) {
    const auto found = progress_.find(key);
    const bool is_rate = std::string_view(key).ends_with("_per_second");
    if (found != progress_.end() && (is_active || !is_rate)) add(name, help, found->second);
  }
  PrometheusGauge gauge{"levin_system", "The newest figure of the machine: memory, load, temperature.", {}};
  for (const auto& [name, value] : measurements_) gauge.samples.push_back({{{"run", run_}, {"name", name}}, value});
  all.push_back(std::move(gauge));
  return all;
}

void PrometheusLogger::write_file() {
  if (!std::exchange(is_stale_, false)) return;
  try {
    (void)write_file_durably(followed_links(path_), prometheus_text(gauges()));
  } catch (const Error& error) {
    is_stale_ = true;
    timer_.arm(options_.every);
    if (std::exchange(failing_, true)) return;
    return Console::instance().error(std::string("PrometheusLogger: ") + error.what() +
                                     " The file keeps its old values until it can be written; training continues.");
  }
  if (std::exchange(failing_, false))
    Console::instance().print("PrometheusLogger: " + path_ + " can be written again.");
}

void PrometheusLogger::finalize(const std::string& status) {
  timer_.stop();
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;
  status_ = status.empty() ? "failed" : status;
  is_stale_ = true;
  if (!options_.remove_at_end) return write_file();
  is_stale_ = false;  // or the next run of the process would not start the timer
  std::error_code code;
  fs::remove(path_, code);
  if (code) Console::instance().error("PrometheusLogger: cannot remove " + path_ + ": " + code.message() + ".");
}

}  // namespace levin
