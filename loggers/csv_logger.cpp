#include "levin/loggers/csv_logger.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "levin/core/console.h"
#include "levin/core/files.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// Python's spelling, which is what readers of these files expect.
std::string cell(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<int64_t>(value)) + ".0";
  }
  return number_text(value);
}

std::string first_free_version(const fs::path& experiment) {
  for (int64_t k = 0;; ++k) {
    const std::string version = "version_" + std::to_string(k);
    if (!fs::exists(experiment / version)) return version;
  }
}

std::string quoted_column(const std::string& name) {
  if (name.find_first_of(",\"\n") == std::string::npos) return name;
  std::string out = "\"";
  for (char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// The names of a header line, without the quotes that some need.
std::vector<std::string> column_names(const std::string& header) {
  std::vector<std::string> names(1);
  bool quoted = false;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool doubled = quoted && header[i] == '"' && i + 1 < header.size() && header[i + 1] == '"';
    if (doubled) {
      names.back() += header[i++];
    } else if (header[i] == '"') {
      quoted = !quoted;
    } else if (header[i] == ',' && !quoted) {
      names.emplace_back();
    } else {
      names.back() += header[i];
    }
  }
  return names;
}

}  // namespace

CsvLogger::CsvLogger(CsvLoggerOptions options) : options_(checked(std::move(options), "CsvLoggerOptions")) {}

CsvLogger::~CsvLogger() {
  try {
    save();
  } catch (const std::exception& error) {
    Console::instance().error(error.what());
  }
}

void CsvLogger::start(const std::string& default_root_dir) {
  if (!log_dir_.empty()) return;
  const fs::path experiment =
      fs::path(options_.save_dir.empty() ? default_root_dir : options_.save_dir) / options_.name;
  log_dir_ = (experiment / (options_.version.empty() ? first_free_version(experiment) : options_.version)).string();
  make_folder(log_dir_);
}

std::string CsvLogger::metrics_path() const {
  return (fs::path(log_dir_) / "metrics.csv").string();
}

void CsvLogger::log_metrics(const MetricList& metrics, int64_t step) {
  Row row(metrics.begin(), metrics.end());
  row["step"] = static_cast<double>(step);
  for (const auto& [name, value] : row) columns_grew_ = columns_.insert(name).second || columns_grew_;
  unwritten_.push_back(std::move(row));
  if (static_cast<int64_t>(unwritten_.size()) >= options_.flush_logs_every_n_steps) save();
}

void CsvLogger::log_hyperparams(const ConfigNode& hparams) {
  write_file_durably((fs::path(log_dir_) / "hparams.yaml").string(), to_yaml(hparams));
}

std::string CsvLogger::row_text(const Row& row) const {
  std::string text;
  for (const auto& column : columns_) {
    if (!text.empty() || column != *columns_.begin()) text += ",";
    // Counters are whole numbers, as Python writes them.
    if (const auto found = row.find(column); found != row.end()) {
      const bool counter = column == "step" || column == "epoch";
      text += counter ? std::to_string(static_cast<int64_t>(found->second)) : cell(found->second);
    }
  }
  return text + "\n";
}

void CsvLogger::rewrite_with_new_columns() {
  std::vector<std::string> old_lines;
  std::vector<size_t> place;  // of each new column in an old line
  std::ifstream old_file(metrics_path());
  std::string line;
  if (std::getline(old_file, line)) {
    std::map<std::string, size_t> old_columns;
    for (const auto& name : column_names(line)) old_columns.emplace(name, old_columns.size());
    for (const auto& [name, index] : old_columns) columns_.insert(name);  // a run that continues keeps its columns
    for (const auto& column : columns_) {
      const auto found = old_columns.find(column);
      place.push_back(found == old_columns.end() ? std::string::npos : found->second);
    }
    while (std::getline(old_file, line)) old_lines.push_back(line);
  }
  std::string content;
  for (const auto& column : columns_) content += (content.empty() ? "" : ",") + quoted_column(column);
  content += "\n";
  for (const auto& old_line : old_lines) {
    std::vector<std::string> cells;
    std::stringstream stream(old_line);
    for (std::string value; std::getline(stream, value, ',');) cells.push_back(value);
    for (size_t k = 0; k < place.size(); ++k) {
      content += (k == 0 ? "" : ",") + (place[k] < cells.size() ? cells[place[k]] : "");
    }
    content += "\n";
  }
  write_file_durably(metrics_path(), content);
  columns_grew_ = false;
}

void CsvLogger::save() {
  if (unwritten_.empty()) return;
  if (columns_grew_) rewrite_with_new_columns();
  std::ofstream file(metrics_path(), std::ios::app);
  for (const auto& row : unwritten_) file << row_text(row);
  file.flush();
  if (!file) throw Error("CsvLogger: cannot write " + metrics_path() + ": " + system_error_text(errno) + ".");
  unwritten_.clear();
}

}  // namespace levin
