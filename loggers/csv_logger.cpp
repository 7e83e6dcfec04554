#include "levin/loggers/csv_logger.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "levin/core/console.h"
#include "levin/core/files.h"
#include "levin/loggers/run_folder.h"

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

// metrics.csv as it is on the disk. A line that a killed process did not finish is left out.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::string> rows;
};

Table read_table(const std::string& path) {
  Table table;
  if (!fs::exists(path)) return table;
  const std::string content = read_file(path);
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = content.find('\n'); end != std::string::npos; end = content.find('\n', begin)) {
    lines.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.empty()) return table;
  table.columns = column_names(lines[0]);
  table.rows.assign(lines.begin() + 1, lines.end());
  return table;
}

// The table's first rows under other columns, as text: header and rows.
std::string table_text(const Table& table, size_t rows, const std::set<std::string>& columns) {
  std::string content;
  std::vector<size_t> place;  // of each new column in an old row
  for (const auto& column : columns) {
    content += (content.empty() ? "" : ",") + quoted_column(column);
    place.push_back(
        static_cast<size_t>(std::find(table.columns.begin(), table.columns.end(), column) - table.columns.begin()));
  }
  content += "\n";
  for (size_t row = 0; row < rows; ++row) {
    std::vector<std::string> cells;
    std::stringstream stream(table.rows[row]);
    for (std::string value; std::getline(stream, value, ',');) cells.push_back(value);
    for (size_t k = 0; k < place.size(); ++k) {
      content += (k == 0 ? "" : ",") + (place[k] < cells.size() ? cells[place[k]] : "");
    }
    content += "\n";
  }
  return content;
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

std::string CsvLogger::experiment_folder(const std::string& default_root_dir) const {
  return (fs::path(options_.save_dir.empty() ? default_root_dir : options_.save_dir) / options_.name).string();
}

void CsvLogger::start_in(const std::string& folder) {
  log_dir_ = folder;
  make_folder(log_dir_);
  rows_ = static_cast<int64_t>(read_table(metrics_path()).rows.size());  // a version that was named goes on
}

void CsvLogger::own_folder() {
  mark_job(log_dir_);
}

void CsvLogger::start(const std::string& default_root_dir, bool resume) {
  if (!log_dir_.empty()) return;
  const std::string experiment = experiment_folder(default_root_dir);
  if (!options_.version.empty()) return start_in((fs::path(experiment) / options_.version).string());
  const std::vector<int64_t> earlier = run_versions(experiment);
  start_in(resume && !earlier.empty() ? version_folder(experiment, earlier.back()) : claim_run_folder(experiment));
}

void CsvLogger::start_again(const std::string& default_root_dir, bool resume) {
  const std::string own = options_.version.empty() ? folder_of_job(experiment_folder(default_root_dir)) : "";
  if (own.empty() || !log_dir_.empty()) return start(default_root_dir, resume);
  start_in(own);
}

std::vector<std::string> CsvLogger::earlier_log_dirs() const {
  const std::string experiment = fs::path(log_dir_).parent_path().string();
  const std::vector<int64_t> all = run_versions(experiment);
  std::vector<std::string> folders;
  for (auto number = all.rbegin(); number != all.rend(); ++number) {
    const std::string folder = version_folder(experiment, *number);
    if (folder != log_dir_) folders.push_back(folder);
  }
  const bool numbered = folders.size() < all.size();
  return numbered ? folders : std::vector<std::string>();
}

std::string CsvLogger::metrics_path() const {
  return (fs::path(log_dir_) / "metrics.csv").string();
}

void CsvLogger::log_metrics(const MetricList& metrics, int64_t step) {
  Row row(metrics.begin(), metrics.end());
  row["step"] = static_cast<double>(step);
  for (const auto& [name, value] : row) columns_grew_ = columns_.insert(name).second || columns_grew_;
  unwritten_.push_back(std::move(row));
  ++rows_;
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
  const Table table = read_table(metrics_path());
  columns_.insert(table.columns.begin(), table.columns.end());  // a run that continues keeps its columns
  const size_t written = std::min(table.rows.size(), static_cast<size_t>(rows_) - unwritten_.size());
  write_file_durably(metrics_path(), table_text(table, written, columns_));
  columns_grew_ = false;
}

State CsvLogger::state() const {
  State state;
  state.set("rows", rows_);
  state.set("columns", std::vector<std::string>(columns_.begin(), columns_.end()));
  return state;
}

void CsvLogger::load_state(const State& saved) {
  unwritten_.clear();
  columns_.clear();
  columns_grew_ = false;
  rows_ = 0;
  if (!fs::exists(metrics_path())) return;  // a folder of its own: it begins with the rows that follow
  const int64_t wanted = saved.empty() ? 0 : saved.get<int64_t>("rows");
  if (wanted == 0) {
    fs::remove(metrics_path());
    return;
  }
  const Table table = read_table(metrics_path());
  rows_ = std::min(wanted, static_cast<int64_t>(table.rows.size()));
  if (rows_ < wanted) {
    Console::instance().warn("CSVLogger: " + metrics_path() + " holds " + std::to_string(table.rows.size()) +
                             " rows where the checkpoint counts " + std::to_string(wanted) +
                             ". The missing ones are lost.");
  }
  const auto columns = saved.get<std::vector<std::string>>("columns");
  columns_.insert(columns.begin(), columns.end());
  write_file_durably(metrics_path(), table_text(table, static_cast<size_t>(rows_), columns_));
}

void CsvLogger::write_rows() {
  if (columns_grew_ || failing_) rewrite_with_new_columns();
  std::ofstream file(metrics_path(), std::ios::app);
  for (const auto& row : unwritten_) file << row_text(row);
  file.flush();
  if (!file) throw Error("cannot write " + metrics_path() + ": " + system_error_text(errno) + ".");
  unwritten_.clear();
}

void CsvLogger::save() {
  if (unwritten_.empty()) return;
  try {
    write_rows();
    failing_ = false;
  } catch (const Error& error) {
    if (!failing_) {
      Console::instance().error(std::string("CSVLogger: ") + error.what() +
                                " Rows are kept in memory until they can be written; training goes on.");
    }
    failing_ = true;
  }
}

}  // namespace levin
