// What a Trainer sends to its loggers besides what `log` reduces.
#include <memory>
#include <optional>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/core/utf8.h"
#include "levin/loggers/counter_names.h"
#include "levin/loggers/histogram.h"
#include "levin/loggers/image.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

void check_name(const char* call, std::string_view name) {
  if (name.empty()) throw Error(std::string(call) + ": a value needs a name.");
  if (!has_control_character(name)) return;
  throw Error(std::string(call) + "(\"" + cut_text(std::string(name)) +
              "\"): the name holds a line end or another control character, which no table can show. Choose another "
              "name.");
}

// Rows of every logger have their counters under these names.
void check_metric_name(const char* call, std::string_view name) {
  check_name(call, name);
  if (!is_counter_name(name)) return;
  throw Error(std::string(call) + "(\"" + std::string(name) + "\"): " + std::string(name) +
              " is the name of the counter in the rows of the loggers. Choose another name.");
}

// Whether a value of this kind is written; the user hears of it once where no logger takes it.
bool is_wanted(const Run& run, LogKind kind, const char* call, const char* what) {
  if (!run.writes_logs()) return false;
  if (run.log_stream->takes(kind)) return true;
  Console::instance().warn(std::string(call) + ": no logger of this run takes " + what +
                           ". Add one that does, such as TensorBoardLogger.");
  return false;
}

}  // namespace

const StepOutput& Trainer::step_output() const {
  return run_->entry.outputs;
}

void Trainer::log_now(const Metrics& metrics, int64_t step) {
  for (const auto& [name, value] : metrics) check_metric_name("log_now", name);
  for (const auto& [name, value] : metrics) run_->set_callback_metric(name, value, run_->batches_done());
  run_->write_metrics(metrics, step);
}

void Trainer::log_system(const Metrics& figures, int64_t step) {
  for (const auto& [name, value] : figures) check_metric_name("log_system", name);
  for (const auto& [name, value] : figures) {
    run_->logged_metrics.set(name, value);
    run_->set_callback_metric(name, value, run_->batches_done());
  }
  if (run_->writes_logs()) run_->log_stream->log_system({figures.begin(), figures.end()}, step);
}

// The copy is made here, the bins by the loggers' thread, once for all loggers.
void Trainer::log_histogram(std::string_view name, const at::Tensor& values) {
  check_name("log_histogram", name);
  if (!values.defined() || values.numel() == 0) {
    throw Error("log_histogram(\"" + std::string(name) +
                "\"): the tensor has no elements. Log it where it holds values.");
  }
  if (!is_wanted(*run_, LogKind::histograms, "log_histogram", "histograms")) return;
  const at::Tensor copy = values.detach().to(at::kCPU, values.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  const auto made = std::make_shared<std::optional<Histogram>>();
  run_->log_stream->log(LogKind::histograms, logging_step(), copy.nbytes(),
                        [name = std::string(name), copy, made](Logger& logger, const LogPoint& at) {
                          if (!*made) *made = histogram_of(copy);
                          logger.log_histogram(name, **made, at);
                        });
}

void Trainer::log_image(std::string_view name, const at::Tensor& image) {
  check_name("log_image", name);
  if (!is_wanted(*run_, LogKind::images, "log_image", "images")) return;
  if (!image.defined()) throw Error("log_image(\"" + std::string(name) + "\"): got no tensor.");
  const auto made = std::make_shared<const LogImage>(image_of(image.detach().cpu()));
  run_->log_stream->log(
      LogKind::images, logging_step(), made->samples.size(),
      [name = std::string(name), made](Logger& logger, const LogPoint& at) { logger.log_image(name, *made, at); });
}

void Trainer::log_text(std::string_view name, std::string_view text) {
  check_name("log_text", name);
  if (!is_wanted(*run_, LogKind::text, "log_text", "texts")) return;
  run_->log_stream->log(LogKind::text, logging_step(), text.size(),
                        [name = std::string(name), text = std::string(text)](Logger& logger, const LogPoint& at) {
                          logger.log_text(name, text, at);
                        });
}

void Trainer::log_table(std::string_view name, LogTable table) {
  check_name("log_table", name);
  for (const auto& row : table.rows) {
    if (row.size() == table.columns.size()) continue;
    throw Error("log_table(\"" + std::string(name) + "\"): a row has " + std::to_string(row.size()) +
                " cells, and there are " + std::to_string(table.columns.size()) +
                " columns. Give each row all of them.");
  }
  if (!is_wanted(*run_, LogKind::tables, "log_table", "tables")) return;
  const size_t bytes = table.rows.size() * table.columns.size() * sizeof(LogTable::Cell);
  run_->log_stream->log(LogKind::tables, logging_step(), bytes,
                        [name = std::string(name), table = std::move(table)](Logger& logger, const LogPoint& at) {
                          logger.log_table(name, table, at);
                        });
}

void Trainer::log_artifact(const std::string& path, std::string_view name) {
  const std::string shown = name.empty() ? path.substr(path.rfind('/') + 1) : std::string(name);
  check_name("log_artifact", shown);
  if (!is_wanted(*run_, LogKind::artifacts, "log_artifact", "files")) return;
  run_->log_stream->log(LogKind::artifacts, logging_step(), 0,
                        [shown, path](Logger& logger, const LogPoint& at) { logger.log_artifact(shown, path, at); });
}

void Trainer::flush_logs() {
  run_->drain_logs();
}

}  // namespace levin
