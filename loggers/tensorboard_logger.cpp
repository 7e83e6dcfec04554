#include "levin/loggers/tensorboard_logger.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/loggers/event_records.h"

namespace levin {

namespace {

constexpr const char* kEventFile = "events.out.tfevents.";
constexpr long long kLatestTime = 9'999'999'998;  // of ten digits, as names have; one more is left for a new file

LogPoint timed(const LogPoint& at) {
  return at.time > 0 ? at : LogPoint(at.step, seconds_since_1970());
}

bool begins_as_own(const std::string& path) {
  std::string first(128, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<size_t>(file.gcount()));
  return is_own_event_file(first);
}

}  // namespace

TensorBoardLogger::TensorBoardLogger(TensorBoardLoggerOptions options)
    : options_(checked(std::move(options), "TensorBoardLoggerOptions")),
      prefix_(options_.prefix.empty() ? "" : options_.prefix + "-"),
      folder_(options_.save_dir, options_.name, options_.version),
      file_("TensorBoardLogger", options_.flush_secs) {
  check_joined_name("TensorBoardLoggerOptions.sub_dir", options_.sub_dir, "save_dir");
}

TensorBoardLogger::~TensorBoardLogger() {
  try {
    file_.finish();
  } catch (const std::exception& error) {
    Console::instance().error(error.what());
  }
}

uint32_t TensorBoardLogger::takes() const {
  return LogKind::scalars | LogKind::histograms | LogKind::images | LogKind::text | LogKind::tables |
         LogKind::hyperparameters | LogKind::system;
}

void TensorBoardLogger::start(const std::string& default_root_dir, bool resume) {
  folder_.start(default_root_dir, resume);
}

void TensorBoardLogger::start_again(const std::string& default_root_dir, bool resume) {
  folder_.start_again(default_root_dir, resume);
}

void TensorBoardLogger::own_folder() {
  folder_.own();
  if (!std::exchange(looked_, true)) earlier_ = find_event_files();  // a named version is continued
}

std::string TensorBoardLogger::event_folder() const {
  return options_.sub_dir.empty() ? folder_.path() : folder_.path_of(options_.sub_dir);
}

std::vector<TensorBoardLogger::EarlierFile> TensorBoardLogger::find_event_files() {
  std::vector<EarlierFile> found;
  for (const std::string& name : names_in(event_folder())) {
    const std::string path = (std::filesystem::path(event_folder()) / name).string();
    struct stat info {};
    if (!name.starts_with(kEventFile) || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const long long time = std::atoll(name.c_str() + std::string(kEventFile).size());
    if (time <= kLatestTime) newest_ = std::max(newest_, time);
    if (begins_as_own(path)) found.push_back({name, info.st_size});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

// Sorted after the earlier ones, even if they are of the same second or of a host whose clock was ahead.
std::string TensorBoardLogger::new_name() {
  static std::atomic<int> files_of_process = 0;
  newest_ = std::max(static_cast<long long>(seconds_since_1970()), newest_ + 1);
  const std::string host = host_name().empty() ? "localhost" : host_name();
  return kEventFile + formatted("%010lld", newest_) + "." + host + "." + std::to_string(::getpid()) + "." +
         std::to_string(files_of_process++) + options_.filename_suffix;
}

void TensorBoardLogger::begin_file() {
  begun_ = true;
  try {
    make_folder(event_folder());
  } catch (const Error&) {
    // the file cannot be written then, which is reported
  }
  const double now = seconds_since_1970();
  std::string opening = version_record(now);
  if (restart_at_) opening += session_start_record(now, *restart_at_);
  restart_at_.reset();
  file_.set_path((std::filesystem::path(event_folder()) / new_name()).string(), opening);
  if (!hparams_.empty()) file_.add(session_start_info_record(hparams_, {0, now}));
}

void TensorBoardLogger::put(const std::string& record, const LogPoint& at) {
  if (!begun_) begin_file();
  last_step_ = std::max(last_step_, at.step);
  file_.add(record);
  file_.write_if_due();
}

void TensorBoardLogger::log_metrics(const MetricList& metrics, const LogPoint& at) {
  if (metrics.empty()) return;
  for (const auto& [name, value] : metrics) scalars_.insert(name);
  put(scalars_record(metrics, prefix_, timed(at)), at);
}

void TensorBoardLogger::log_system(const MetricList& measurements, const LogPoint& at) {
  if (measurements.empty()) return;
  MetricList named = measurements;
  for (auto& [name, value] : named) {
    if (!name.starts_with("system/")) name = "system/" + name;
  }
  put(scalars_record(named, prefix_, timed(at)), at);
}

void TensorBoardLogger::log_histogram(const std::string& name, const Histogram& histogram, const LogPoint& at) {
  put(histogram_record(tag(name), histogram, timed(at)), at);
}

void TensorBoardLogger::log_image(const std::string& name, const LogImage& image, const LogPoint& at) {
  put(image_record(tag(name), image, timed(at)), at);
}

void TensorBoardLogger::log_text(const std::string& name, const std::string& text, const LogPoint& at) {
  put(text_record(tag(name), text, timed(at)), at);
}

void TensorBoardLogger::log_table(const std::string& name, const LogTable& table, const LogPoint& at) {
  put(text_record(tag(name), markdown_table(table), timed(at)), at);
}

// TensorBoard keeps the first of a folder's records of this kind, so that a second fit's would be ignored.
void TensorBoardLogger::log_hyperparams(const ConfigNode& hparams) {
  write_file_durably(folder_.path_of("hparams.yaml"), to_yaml(hparams));
  const bool late = begun_ && hparams_.empty();
  hparams_ = flat_hparams(hparams);
  if (late && !hparams_.empty()) file_.add(session_start_info_record(hparams_, timed({0, 0})));
}

// Those that were never logged get a value here, so that their columns are not empty.
void TensorBoardLogger::log_final_metrics(const MetricList& metrics, const LogPoint& at) {
  MetricList fresh;
  for (const auto& metric : metrics) {
    if (scalars_.insert(metric.first).second) fresh.push_back(metric);
  }
  if (!fresh.empty()) put(scalars_record(fresh, prefix_, timed(at)), at);
  if (!metrics.empty()) put_experiment(metrics, at);
}

void TensorBoardLogger::put_experiment(const MetricList& metrics, const LogPoint& at) {
  if (hparams_.empty() || std::exchange(has_experiment_, true)) return;
  std::vector<std::string> tags;
  for (const auto& [name, value] : metrics) tags.push_back(tag(name));
  put(experiment_record(hparams_, tags, timed({0, at.time})), {0, 0});
}

void TensorBoardLogger::finalize(const std::string& status) {
  if (begun_ && !status.empty() && !hparams_.empty() && !has_end_) {
    const MetricList none = {{"hp_metric", -1}};
    if (!has_experiment_ && options_.default_hp_metric && !scalars_.contains("hp_metric")) log_metrics(none, {0, 0});
    if (!has_experiment_ && options_.default_hp_metric) put_experiment(none, {0, 0});
    has_end_ = status == "success" || status == "failed";
    if (has_end_) put(session_end_info_record(status == "success", timed({0, 0})), {0, 0});
  }
  file_.finish();
}

State TensorBoardLogger::state_dict() const {
  std::vector<std::string> names;
  std::vector<int64_t> bytes;
  for (const EarlierFile& file : earlier_) {
    names.push_back(file.name);
    bytes.push_back(file.bytes);
  }
  if (begun_) {
    names.push_back(std::filesystem::path(file_.path()).filename().string());
    bytes.push_back(static_cast<int64_t>(file_.size()));
  }
  State state;
  state.set("event_files", names);
  state.set("event_bytes", bytes);
  state.set("last_step", last_step_);
  std::vector<std::string> scalars(scalars_.begin(), scalars_.end());
  std::sort(scalars.begin(), scalars.end());
  state.set("scalars", scalars);
  return state;
}

void TensorBoardLogger::load_state_dict(const State& saved) {
  if (!saved.empty() && !saved.has("event_files")) return;  // of another logger: nothing is known about these files
  const auto names = saved.empty() ? std::vector<std::string>() : saved.get<std::vector<std::string>>("event_files");
  const auto bytes = saved.empty() ? std::vector<int64_t>() : saved.get<std::vector<int64_t>>("event_bytes");
  file_.set_path("");
  begun_ = has_experiment_ = has_end_ = false;
  scalars_.clear();
  if (saved.has("scalars")) {  // checkpoints of older versions do not have them
    for (const std::string& name : saved.get<std::vector<std::string>>("scalars")) scalars_.insert(name);
  }
  earlier_.clear();
  last_step_ = saved.empty() ? -1 : saved.get<int64_t>("last_step");
  for (const EarlierFile& file : find_event_files()) {
    const std::string path = (std::filesystem::path(event_folder()) / file.name).string();
    restart_at_ = last_step_ + 1;
    const auto kept = static_cast<size_t>(std::find(names.begin(), names.end(), file.name) - names.begin());
    if (kept >= bytes.size()) {
      std::error_code code;
      std::filesystem::remove(path, code);
      if (code) throw Error("cannot remove " + path + ": " + code.message() + ".");
      continue;
    }
    (void)cut_file(path, bytes[kept]);
    earlier_.push_back({file.name, std::min(file.bytes, bytes[kept])});
    if (file.bytes >= bytes[kept]) continue;
    Console::instance().warn("TensorBoardLogger: " + path + " holds " + std::to_string(file.bytes) +
                             " bytes where the checkpoint counts " + std::to_string(bytes[kept]) +
                             ". The missing ones are lost.");
  }
}

std::vector<std::string> TensorBoardLogger::files() const {
  std::vector<std::string> paths;
  for (const EarlierFile& file : earlier_)
    paths.push_back((std::filesystem::path(event_folder()) / file.name).string());
  if (begun_) paths.push_back(file_.path());
  return paths;
}

}  // namespace levin
