#include "levin/loggers/json_lines_logger.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/wire_message.h"
#include "levin/core/options/error.h"
#include "levin/core/options/value.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"

namespace levin {

namespace {

template <class Items, class Each>
void append_items(std::string& line, const Items& items, std::string_view brackets, const Each& each) {
  line += brackets[0];
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) line += ',';
    each(item);
  }
  line += brackets[1];
}

void append_escaped(std::string& line, char c) {
  switch (c) {
    case '"': line += "\\\""; return;
    case '\\': line += "\\\\"; return;
    case '\n': line += "\\n"; return;
    case '\r': line += "\\r"; return;
    case '\t': line += "\\t"; return;
    default: break;
  }
  line += formatted("\\u%04x", static_cast<unsigned char>(c));
}

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

void append_json(std::string& line, double number) {
  if (std::isnan(number)) {
    line += "\"NaN\"";
  } else if (std::isinf(number)) {
    line += number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    line.append(digits.data(), end.ptr);
  }
}

void append_json(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : valid_utf8(text)) {
    const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
    plain ? line.push_back(c) : append_escaped(line, c);
  }
  line += '"';
}

void append_json(std::string& line, const MetricList& numbers) {
  append_items(line, numbers, "{}", [&](const auto& one) {
    append_json(line, std::string_view(one.first));
    line += ':';
    append_json(line, one.second);
  });
}

void append_json(std::string& line, std::span<const double> numbers) {
  append_items(line, numbers, "[]", [&](double number) { append_json(line, number); });
}

void append_json(std::string& line, const LogTable::Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) return append_json(line, *number);
  append_json(line, std::string_view(std::get<std::string>(cell)));
}

void append_json(std::string& line, const ConfigNode& node) {
  bool truth = false;
  double number = 0;
  if (node.is_null()) {
    line += "null";
  } else if (node.is_list()) {
    append_items(line, node.items, "[]", [&](const ConfigNode& item) { append_json(line, item); });
  } else if (node.is_map()) {
    append_items(line, node.entries, "{}", [&](const ConfigEntry& entry) {
      append_json(line, std::string_view(entry.key));
      line += ':';
      append_json(line, entry.value);
    });
  } else if (!node.quoted && detail::parse_bool(node, truth)) {
    line += truth ? "true" : "false";
  } else if (!node.quoted && detail::parse_double(node, number)) {
    append_json(line, number);
  } else {
    append_json(line, std::string_view(node.text));
  }
}

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

void JSONLinesLogger::log_system(const MetricList& measurements, const LogPoint& at) {
  std::string line = line_at(at, "system");
  append_json(line, measurements);
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

State JSONLinesLogger::state_dict() const {
  State state;
  state.set("jsonl_bytes", static_cast<int64_t>(file_.size()));
  return state;
}

void JSONLinesLogger::load_state_dict(const State& saved) {
  if (!saved.empty() && !saved.has("jsonl_bytes")) return;  // of another logger
  const std::string path = metrics_path();
  const int64_t wanted = saved.empty() ? 0 : saved.get<int64_t>("jsonl_bytes");
  const int64_t found = cut_file(path, wanted);
  if (found >= 0) (void)cut_file(path, whole_lines(path));  // the length of an edited file may differ
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
