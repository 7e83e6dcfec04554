#include "levin/loggers/json_lines_logger.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/wall_clock.h"
#include "levin/loggers/json_text.h"

namespace levin {

namespace {

// {"time":…,"step":…, up to the value of `key`.
std::string line_at(const LogPoint& at, const char* key, const double* epoch = nullptr) {
  std::string line = "{\"time\":";
  append_json(line, at.time > 0 ? at.time : seconds_since_1970());
  line += ",\"step\":" + std::to_string(at.step);
  if (epoch != nullptr) {
    line += ",\"epoch\":";
    append_json(line, *epoch);
  }
  return line + ",\"" + key + "\":";
}

std::string named_line(const LogPoint& at, const char* kind, const std::string& name) {
  std::string line = line_at(at, kind) + "{\"name\":";
  append_json(line, std::string_view(name));
  return line;
}

// The length of the whole lines in a file; 0 if there is none.
int64_t whole_lines(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return 0;
  return static_cast<int64_t>(read_file(path).find_last_of('\n') + 1);  // 0 of npos
}

}  // namespace

JSONLinesLogger::JSONLinesLogger(JSONLinesLoggerOptions options)
    : options_(checked(std::move(options), "JSONLinesLoggerOptions")),
      folder_(options_.save_dir, options_.name, options_.version),
      file_("JSONLinesLogger", options_.flush_secs) {}

JSONLinesLogger::~JSONLinesLogger() {
  try {
    file_.finish();
  } catch (const std::exception& error) {
    Console::instance().error(error.what());
  }
}

uint32_t JSONLinesLogger::takes() const {
  return LogKind::scalars | LogKind::histograms | LogKind::text | LogKind::tables | LogKind::hyperparameters |
         LogKind::artifacts | LogKind::system;
}

void JSONLinesLogger::start(const std::string& default_root_dir, bool resume) {
  folder_.start(default_root_dir, resume);
  set_file();
}

void JSONLinesLogger::start_again(const std::string& default_root_dir, bool resume) {
  folder_.start_again(default_root_dir, resume);
  set_file();
}

void JSONLinesLogger::set_file() {
  if (file_.path().empty()) file_.set_path(folder_.path_of("metrics.jsonl"));
}

// A line that a killed process left unfinished would run into the next.
void JSONLinesLogger::own_folder() {
  folder_.own();
  if (file_.is_waiting()) return;
  try {
    (void)cut_file(metrics_path(), whole_lines(metrics_path()));
    file_.set_path(metrics_path());
  } catch (const Error&) {
    // a file that cannot be read cannot be written either, which is reported then
  }
}

void JSONLinesLogger::put(const std::string& line) {
  if (!opening_.empty()) file_.add(std::exchange(opening_, ""));
  file_.add(line + "\n");
  file_.write_if_due();
}

void JSONLinesLogger::log_metrics(const MetricList& metrics, const LogPoint& at) {
  const auto epoch = std::find_if(metrics.begin(), metrics.end(), [](const auto& one) { return one.first == "epoch"; });
  const bool has_epoch = epoch != metrics.end();
  std::string line = line_at(at, "metrics", has_epoch ? &epoch->second : nullptr);
  if (has_epoch) {
    MetricList others = metrics;
    std::erase_if(others, [](const auto& one) { return one.first == "epoch"; });
    append_json(line, others);
  } else {
    append_json(line, metrics);
  }
  put(line + "}");
}

void JSONLinesLogger::log_system(const MetricList& figures, const LogPoint& at) {
  std::string line = line_at(at, "system");
  append_json(line, figures);
  put(line + "}");
}

void JSONLinesLogger::log_final_metrics(const MetricList& metrics, const LogPoint& at) {
  std::string line = line_at(at, "final");
  append_json(line, metrics);
  put(line + "}");
}

void JSONLinesLogger::log_histogram(const std::string& name, const Histogram& histogram, const LogPoint& at) {
  std::string line = named_line(at, "histogram", name);
  for (const auto& [key, value] : MetricList{{"min", histogram.min},
                                             {"max", histogram.max},
                                             {"count", histogram.count},
                                             {"sum", histogram.sum},
                                             {"sum_squares", histogram.sum_squares},
                                             {"nonfinite", static_cast<double>(histogram.nonfinite)}}) {
    line += ",\"" + key + "\":";
    append_json(line, value);
  }
  line += ",\"edges\":";
  append_json(line, std::span<const double>(histogram.edges));
  line += ",\"counts\":";
  append_json(line, std::span<const double>(histogram.counts));
  put(line + "}}");
}

void JSONLinesLogger::log_text(const std::string& name, const std::string& text, const LogPoint& at) {
  std::string line = named_line(at, "text", name) + ",\"text\":";
  append_json(line, std::string_view(text));
  put(line + "}}");
}

void JSONLinesLogger::log_table(const std::string& name, const LogTable& table, const LogPoint& at) {
  std::string line = named_line(at, "table", name) + ",\"columns\":[";
  for (size_t k = 0; k < table.columns.size(); ++k) {
    if (k > 0) line += ',';
    append_json(line, std::string_view(table.columns[k]));
  }
  line += "],\"rows\":[";
  for (size_t k = 0; k < table.rows.size(); ++k) {
    line += k > 0 ? ",[" : "[";
    for (size_t c = 0; c < table.rows[k].size(); ++c) {
      if (c > 0) line += ',';
      append_json(line, table.rows[k][c]);
    }
    line += ']';
  }
  put(line + "]}}");
}

void JSONLinesLogger::log_artifact(const std::string& name, const std::string& path, const LogPoint& at) {
  std::string line = named_line(at, "artifact", name) + ",\"path\":";
  append_json(line, std::string_view(path));
  put(line + "}}");
}

void JSONLinesLogger::log_hyperparams(const ConfigNode& hparams) {
  opening_ = line_at({0, 0}, "hparams");
  append_json(opening_, hparams);
  opening_ += "}\n";
}

void JSONLinesLogger::finalize(const std::string&) {
  file_.finish();
}

State JSONLinesLogger::state() const {
  State state;
  state.set("jsonl_bytes", static_cast<int64_t>(file_.size()));
  return state;
}

void JSONLinesLogger::load_state(const State& saved) {
  if (!saved.empty() && !saved.has("jsonl_bytes")) return;  // of another logger
  const std::string path = metrics_path();
  const int64_t wanted = saved.empty() ? 0 : saved.get<int64_t>("jsonl_bytes");
  const int64_t found = cut_file(path, wanted);
  if (found >= 0) (void)cut_file(path, whole_lines(path));  // a file that was edited may have had another length
  if (found >= 0 && wanted == 0) {
    std::error_code code;
    std::filesystem::remove(path, code);
    if (code) throw Error("cannot remove " + path + ": " + code.message() + ".");
  }
  file_.set_path(path);
  if (found < 0 || found >= wanted) return;
  Console::instance().warn("JSONLinesLogger: " + path + " holds " + std::to_string(found) +
                           " bytes where the checkpoint counts " + std::to_string(wanted) +
                           ". The missing ones are lost.");
}

}  // namespace levin
