#include "levin/loggers/csv_logger.h"

#include <filesystem>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/files.h"

namespace levin {

CSVLogger::CSVLogger(CSVLoggerOptions options)
    : options_(checked(std::move(options), "CSVLoggerOptions")),
      folder_(options_.save_dir, options_.name, options_.version) {}

CSVLogger::~CSVLogger() {
  try {
    finalize("");
  } catch (const std::exception& error) {
    Console::instance().error(error.what());
  }
}

void CSVLogger::start(const std::string& default_root_dir, bool resume) {
  folder_.start(default_root_dir, resume);
  set_file();
}

void CSVLogger::start_again(const std::string& default_root_dir, bool resume) {
  folder_.start_again(default_root_dir, resume);
  set_file();
}

void CSVLogger::set_file() {
  if (file_.path().empty()) file_ = MetricsFile(folder_.path_of("metrics.csv"));
}

void CSVLogger::own_folder() {
  folder_.own();
  try {
    file_.look();  // a named version is continued
  } catch (const Error&) {
    // a file that cannot be read cannot be written either, which is reported then
  }
}

void CSVLogger::log_metrics(const MetricList& metrics, const LogPoint& at) {
  file_.add(metrics, at.step);
  if (patience_.failing()) patience_.add_lost(file_.drop_excess());
  if (file_.waiting() >= options_.flush_logs_every_n_steps) write(false);
}

void CSVLogger::log_hyperparams(const ConfigNode& hparams) {
  write_file_durably(folder_.path_of("hparams.yaml"), to_yaml(hparams));
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
  const bool was_there = std::filesystem::exists(metrics_path(), code);
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
  if (file_.waiting() == 0 || patience_.skips_write()) return;
  const int64_t waited = file_.waiting();
  try {
    file_.write(all);
  } catch (const Error& error) {
    return patience_.failed(error.what());
  }
  patience_.wrote(metrics_path(), waited - file_.waiting());
}

// The last chance for waiting rows.
void CSVLogger::finalize(const std::string&) {
  patience_.try_next();
  write(true);
  if (patience_.failing()) patience_.add_lost(file_.drop_waiting());
  patience_.give_up();
}

}  // namespace levin
