#include "levin/cli/runs/metrics_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr size_t kPiece = 4 << 20;
constexpr size_t kSmallPiece = 4 << 10;
constexpr size_t kTail = 64;
constexpr size_t kMaxTimes = 1000;
constexpr size_t kMaxLineBytes = 64 << 20;  // a header of a million names; a longer line is not a table

size_t read_at(int fd, char* into, size_t bytes, uint64_t at, const std::string& path) {
  ssize_t got = ::pread(fd, into, bytes, static_cast<off_t>(at));
  while (got < 0 && errno == EINTR) got = ::pread(fd, into, bytes, static_cast<off_t>(at));
  if (got < 0) throw Error(path + ": cannot be read: " + system_error_text(errno) + ".");
  return static_cast<size_t>(got);
}

// Whether all of `cell` is a number; "nan" and "inf" are.
bool parse_cell(std::string_view cell, double& value) {
  while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.remove_suffix(1);
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  const auto result = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (result.ec == std::errc::result_out_of_range && result.ptr == cell.data() + cell.size()) {
    const std::string text(cell);
    value = std::strtod(text.c_str(), nullptr);  // 0 or an infinity
    return true;
  }
  return result.ec == std::errc() && result.ptr == cell.data() + cell.size();
}

// Not read by core/files/csv.h: the file grows while it is read, its last line may be incomplete, and a CsvField
// takes 48 bytes where a value takes 16 here.
//
// Where the header ends: at a line end outside of quotes.
size_t header_length(std::string_view text) {
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\n' && !quoted) return i;
  }
  return std::string_view::npos;
}

std::vector<std::string> header_names(std::string_view header) {
  std::vector<std::string> names(1);
  bool quoted = false;
  for (size_t i = 0; i < header.size(); ++i) {
    const char c = header[i];
    if (quoted && c == '"' && i + 1 < header.size() && header[i + 1] == '"') {
      names.back() += header[i++];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      names.emplace_back();
    } else if (c != '\r' || i + 1 < header.size()) {
      names.back() += c;
    }
  }
  return names;
}

// JSON has no nan: writers use null or text.
bool json_number(const nlohmann::json& value, double& number) {
  if (value.is_number()) {
    number = value.get<double>();
    return true;
  }
  if (value.is_null()) {
    number = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (!value.is_string()) return false;
  std::string text = value.get<std::string>();
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
  return (text.starts_with("nan") || text.starts_with("inf") || text.starts_with("-inf")) && parse_cell(text, number);
}

}  // namespace

void MetricsReader::start_again() {
  series_.clear();
  times_.clear();
  columns_.clear();
  time_stride_ = 1;
  timed_rows_ = bad_lines_ = 0;
  has_header_ = false;
  read_ = 0;
  tail_.clear();
}

bool MetricsReader::was_replaced(int fd, uint64_t device, uint64_t inode, uint64_t size) const {
  if (device != device_ || inode != inode_ || size < read_) return true;
  std::array<char, kTail> now = {};
  const size_t got = read_at(fd, now.data(), tail_.size(), read_ - tail_.size(), folder_);
  return std::string_view(now.data(), got) != tail_;
}

bool MetricsReader::update() {
  std::string path = folder_ + "/metrics.csv";
  struct stat found {};
  const bool is_json = ::stat(path.c_str(), &found) != 0;
  if (is_json) path = folder_ + "/metrics.jsonl";
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno != ENOENT && errno != ENOTDIR) {
    throw Error(path + ": cannot be opened: " + system_error_text(errno) + ".");
  }
  if (file && ::fstat(file.get(), &found) == 0 && !S_ISREG(found.st_mode)) {
    throw Error(path + ": it is not a regular file, and is left out.");
  }
  if (!file) {
    const bool had = read_ > 0;
    start_again();
    return had;
  }
  const auto device = static_cast<uint64_t>(found.st_dev);
  const auto inode = static_cast<uint64_t>(found.st_ino);
  const bool again =
      is_json != is_json_ || was_replaced(file.get(), device, inode, static_cast<uint64_t>(found.st_size));
  bool any = again && read_ > 0;
  if (again) start_again();
  is_json_ = is_json;
  device_ = device;
  inode_ = inode;
  std::string buffer;
  size_t kept = 0;  // bytes of an incomplete line at the start of the buffer
  // A small file takes a small buffer: `levin runs` reads thousands of them.
  const size_t piece = std::clamp<size_t>(static_cast<size_t>(found.st_size) - read_, kSmallPiece, kPiece);
  while (true) {
    buffer.resize(kept + piece);
    const size_t got = read_at(file.get(), buffer.data() + kept, piece, read_ + kept, path);
    if (got == 0) break;
    const std::string_view text(buffer.data(), kept + got);
    const size_t used = take(text);
    if (used > 0) {
      any = true;
      tail_ = text.substr(used > kTail ? used - kTail : 0, std::min(used, kTail));
      read_ += used;
    }
    kept = text.size() - used;
    if (kept > kMaxLineBytes) throw Error(path + ": not a table of metrics: a line is longer than 64 MiB.");
    std::memmove(buffer.data(), buffer.data() + used, kept);
  }
  return any;
}

// Returns the bytes of whole lines.
size_t MetricsReader::take(std::string_view text) {
  size_t begin = 0;
  if (!is_json_ && !has_header_ && !take_header(text, begin)) return 0;
  while (begin < text.size()) {
    const void* end = std::memchr(text.data() + begin, '\n', text.size() - begin);
    if (end == nullptr) break;
    const size_t length = static_cast<size_t>(static_cast<const char*>(end) - text.data()) - begin;
    const std::string_view line = text.substr(begin, length);
    begin += length + 1;
    if (line.empty() || line == "\r") continue;
    is_json_ ? take_json(line) : take_row(line);
  }
  return begin;
}

bool MetricsReader::take_header(std::string_view text, size_t& used) {
  const size_t end = header_length(text);
  if (end == std::string_view::npos) return false;
  const std::vector<std::string> names = header_names(text.substr(0, end));
  step_column_ = names.size();
  for (size_t k = 0; k < names.size(); ++k) {
    if (names[k] == "step") step_column_ = k;
    const bool is_metric =
        names[k] != "step" && names[k] != "epoch" && !names[k].empty() && !series_.contains(names[k]);
    columns_.push_back(is_metric ? &series_[names[k]] : nullptr);
  }
  has_header_ = true;
  used = end + 1;
  return true;
}

void MetricsReader::take_row(std::string_view row) {
  row_.clear();
  double step = std::nan("");
  bool good = true;
  size_t column = 0;
  for (size_t begin = 0; begin <= row.size() && column < columns_.size(); ++column) {
    const size_t comma = std::min(row.find(',', begin), row.size());
    if (comma > begin && !(comma - begin == 1 && row[begin] == '\r')) {
      double value = 0;
      const bool wanted = columns_[column] != nullptr || column == step_column_;
      if (wanted && !parse_cell(row.substr(begin, comma - begin), value)) {
        good = false;
      } else if (column == step_column_) {
        step = value;
      } else if (wanted) {
        row_.emplace_back(columns_[column], value);
      }
    }
    begin = comma + 1;
  }
  if (!is_whole_number(step)) {
    ++bad_lines_;
    return;
  }
  if (!good) ++bad_lines_;
  for (const auto& [series, value] : row_) {
    series->steps.push_back(static_cast<int64_t>(step));
    series->values.push_back(value);
  }
}

void MetricsReader::take_json(std::string_view line) {
  const auto row = nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  const auto step = row.is_object() ? row.find("step") : row.end();
  const auto metrics = row.is_object() ? row.find("metrics") : row.end();
  double at = std::nan("");
  if (!row.is_object() || step == row.end() || !json_number(*step, at) || !is_whole_number(at) ||
      metrics == row.end() || !metrics->is_object()) {
    ++bad_lines_;
    return;
  }
  for (const auto& [name, item] : metrics->items()) {
    double value = 0;
    if (name == "epoch" || name == "step" || !json_number(item, value)) continue;
    MetricSeries& series = series_[name];
    series.steps.push_back(static_cast<int64_t>(at));
    series.values.push_back(value);
  }
  if (const auto time = row.find("time"); time != row.end() && time->is_number()) {
    add_time(static_cast<int64_t>(at), time->get<double>());
  }
}

void MetricsReader::add_time(int64_t step, double time) {
  if (timed_rows_++ % time_stride_ != 0 || (!times_.empty() && step <= times_.back().first)) return;
  times_.emplace_back(step, time);
  if (times_.size() < kMaxTimes) return;
  for (size_t k = 0; 2 * k < times_.size(); ++k) times_[k] = times_[2 * k];
  times_.resize((times_.size() + 1) / 2);
  time_stride_ *= 2;
}

}  // namespace levin
