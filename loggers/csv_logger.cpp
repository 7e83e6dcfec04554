#include "levin/loggers/csv_logger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/write_remedy.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/console.h"
#include "levin/loggers/csv_table.h"

namespace levin {

namespace {

constexpr uint64_t kRewritesPerByte = 4;        // what new columns may cost: so often the file's size …
constexpr uint64_t kFreeRewrites = 8 << 20;     // … and this much beyond, so that files of usual size never wait
constexpr size_t kMaxWaitingCells = 4'000'000;  // 64 MB
constexpr size_t kPiece = 1 << 20;              // of an append: what a full disk lets fail is small
constexpr size_t kNowhere = std::string::npos;

}  // namespace

uint32_t MetricsFile::column(const std::string& name) {
  const auto [found, is_new] = names_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (is_new) place_.push_back(kNowhere);
  if (is_new) is_counter_.push_back(name == "step" || name == "epoch");
  return found->second;
}

void MetricsFile::add(const MetricList& metrics, int64_t step) {
  constexpr uint32_t is_new = std::numeric_limits<uint32_t>::max();
  Row row;
  row.reserve(metrics.size() + 1);
  for (const auto& [name, value] : metrics) {
    const auto known = names_.find(name);
    row.emplace_back(known == names_.end() ? is_new : known->second, value);
    if (known == names_.end() && has_control_character(name)) {
      throw Error("the name of the metric \"" + cut_text(name) +
                  "\" holds a line end or other control character, which no table can show. Choose a different name.");
    }
  }
  for (size_t k = 0; k < row.size(); ++k) {
    if (row[k].first == is_new) row[k].first = column(metrics[k].first);
  }
  row.emplace_back(column("step"), static_cast<double>(step));
  waiting_cells_ += row.size();
  waiting_.push_back(std::move(row));
}

std::vector<std::string> MetricsFile::columns() const {
  std::vector<std::string> names;
  for (const auto& [name, number] : names_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

void MetricsFile::look() {
  if (known_) return;
  read(std::numeric_limits<int64_t>::max());
  known_ = true;
}

// Rows beyond `most_rows` do not belong to this table: they remain from a failed write.
void MetricsFile::read(int64_t most_rows) {
  const CsvTable table = read_csv_table(path_);
  header_.clear();
  std::fill(place_.begin(), place_.end(), kNowhere);
  for (const auto& name : table.columns) {
    const uint32_t number = column(name);
    if (place_[number] == kNowhere) place_[number] = header_.size();
    header_.push_back(number);
  }
  const auto rows = static_cast<int64_t>(table.rows.size());
  rows_in_file_ = std::min(rows, most_rows);
  appendable_ = !table.columns.empty() && table.text.back() == '\n' && rows <= most_rows;
  const FileDescriptor file(open_regular_file(path_, O_RDONLY));
  remember(file.get());
}

bool MetricsFile::lacks_columns() const {
  return std::find(place_.begin(), place_.end(), kNowhere) != place_.end();
}

void MetricsFile::remember(int fd) {
  struct stat info {};
  left_ = fd >= 0 && ::fstat(fd, &info) == 0 ? Identity{info.st_dev, info.st_ino, info.st_size} : Identity();
}

// A file changed by others is read again.
void MetricsFile::note_change() {
  if (!known_) return look();
  struct stat info {};
  const bool there = ::stat(path_.c_str(), &info) == 0;
  if (!there && (errno != ENOENT || left_.inode == 0)) return;  // the write reports the problem
  if (there && info.st_dev == left_.device && info.st_ino == left_.inode && info.st_size == left_.size) return;
  const int64_t before = rows_in_file_;
  read(before);
  const std::string rows = count_of(before, "row");
  if (!there) {
    Console::instance().warn("CSVLogger: " + path_ + " was removed. The " + rows +
                             " that it held are lost; it is started again.");
  } else if (rows_in_file_ < before) {
    Console::instance().warn("CSVLogger: " + path_ + " was changed by another program: of the " + rows + " written, " +
                             std::to_string(rows_in_file_) + " are left. It is continued unchanged.");
  }
}

void MetricsFile::write(bool all) {
  if (waiting_.empty()) return;
  note_change();
  if (appendable_ && !lacks_columns()) return append(waiting_.size());
  if (all || !appendable_ || is_affordable() || waiting_cells_ > kMaxWaitingCells) rewrite_what_fits();
}

// Where the disk has no room for all rows, the first ones are written: under all columns if there is room for those,
// else the rows that need no new column.
void MetricsFile::rewrite_what_fits() {
  try {
    return rewrite(waiting_.size());
  } catch (const Error&) {
    if (waiting_.size() == 1) throw;
  }
  try {
    rewrite(1);
  } catch (const Error&) {
    append(rows_before_a_new_column());
    throw;
  }
  append(waiting_.size());
}

size_t MetricsFile::rows_before_a_new_column() const {
  if (!appendable_) return 0;
  const auto first = std::find_if(waiting_.begin(), waiting_.end(), [this](const Row& row) {
    return std::any_of(row.begin(), row.end(), [this](const auto& cell) { return place_[cell.first] == kNowhere; });
  });
  return static_cast<size_t>(first - waiting_.begin());
}

uint64_t MetricsFile::expected_size() const {
  return static_cast<uint64_t>(left_.size) + waiting_.size() * names_.size() + 8 * waiting_cells_;
}

// See Note [What a new column costs].
bool MetricsFile::is_affordable() const {
  return rewritten_ + expected_size() <= kRewritesPerByte * expected_size() + kFreeRewrites;
}

void MetricsFile::append_row(const Row& row, std::string& text) const {
  std::vector<std::pair<size_t, size_t>> cells;  // place, index; of a name that was given twice the last counts
  for (size_t k = 0; k < row.size(); ++k) cells.emplace_back(place_[row[k].first], k);
  std::sort(cells.begin(), cells.end());
  size_t at = 0;
  for (size_t k = 0; k < cells.size(); ++k) {
    if (k + 1 < cells.size() && cells[k + 1].first == cells[k].first) continue;
    const auto& [number, value] = row[cells[k].second];
    text.append(cells[k].first - at, ',');
    at = cells[k].first;
    // Counters are whole numbers, as Python writes them.
    text += is_counter_[number] ? std::to_string(static_cast<int64_t>(value)) : csv_number(value);
  }
  text.append(header_.size() - 1 - at, ',');
  text += '\n';
}

void MetricsFile::forget_first(size_t count) {
  for (size_t k = 0; k < count; ++k) {
    waiting_cells_ -= waiting_.front().size();
    waiting_.pop_front();
  }
}

// In pieces; if one fails the file is truncated to its last complete row.
void MetricsFile::append(size_t most_rows) {
  if (most_rows == 0) return;
  const FileDescriptor file(open_regular_file(path_, O_WRONLY | O_APPEND));
  const auto fail = [this](int cause) {
    throw Error("cannot write " + path_ + ": " + system_error_text(cause) + ". " + write_remedy(cause));
  };
  if (!file) fail(errno);
  while (most_rows > 0) {
    std::string text;
    size_t count = 0;
    while (count < most_rows && text.size() < kPiece) append_row(waiting_[count++], text);
    if (!write_all(file.get(), text)) {
      const int cause = errno;
      keep_what_fits(file.get(), text);
      fail(cause);
    }
    remember(file.get());
    rows_in_file_ += static_cast<int64_t>(count);
    forget_first(count);
    most_rows -= count;
  }
}

// After a failed write: the whole rows of the text that the disk has taken stay, and a part of another one is removed.
void MetricsFile::keep_what_fits(int fd, std::string_view text) {
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0 && info.st_size > left_.size;
  const size_t taken = known ? static_cast<size_t>(info.st_size - left_.size) : 0;
  const std::string_view rows = text.substr(0, text.substr(0, taken).rfind('\n') + 1);
  if (::ftruncate(fd, left_.size + static_cast<off_t>(rows.size())) != 0) appendable_ = false;
  remember(fd);
  const auto count = std::count(rows.begin(), rows.end(), '\n');
  rows_in_file_ += count;
  forget_first(static_cast<size_t>(count));
}

void MetricsFile::set_header() {
  header_.clear();
  for (const std::string& name : columns()) {
    const uint32_t number = names_.at(name);
    place_[number] = header_.size();
    header_.push_back(number);
  }
}

// The old rows with all columns, and the first of the waiting ones.
void MetricsFile::rewrite(size_t row_count) {
  const std::vector<uint32_t> header_before = header_;
  const std::vector<size_t> place_before = place_;
  try {
    const CsvTable table = read_csv_table(path_);
    std::string text = csv_text(table, static_cast<size_t>(rows_in_file_), columns());
    set_header();
    for (size_t k = 0; k < row_count; ++k) append_row(waiting_[k], text);
    rewritten_ += text.size();
    write_file_durably(path_, text);
  } catch (...) {
    header_ = header_before;
    place_ = place_before;
    throw;
  }
  const FileDescriptor file(open_regular_file(path_, O_RDONLY));
  appendable_ = true;
  remember(file.get());
  rows_in_file_ += static_cast<int64_t>(row_count);
  forget_first(row_count);
}

int64_t MetricsFile::drop_excess() {
  size_t count = 0;
  size_t cells = waiting_cells_;
  while (cells > kMaxWaitingCells) cells -= waiting_[count++].size();
  forget_first(count);
  return static_cast<int64_t>(count);
}

int64_t MetricsFile::drop_waiting() {
  const int64_t count = waiting();
  waiting_.clear();
  waiting_cells_ = 0;
  return count;
}

int64_t MetricsFile::cut(int64_t rows, const std::vector<std::string>& columns) {
  *this = MetricsFile(std::move(path_));
  std::error_code code;
  if (!std::filesystem::exists(path_, code)) return 0;  // a folder of its own: it begins with the rows that follow
  if (rows <= 0) {
    std::filesystem::remove(path_, code);
    if (code) throw Error("cannot remove " + path_ + ": " + code.message() + ".");
    return 0;
  }
  const CsvTable table = read_csv_table(path_);
  for (const auto& name : columns) (void)column(name);
  write_file_durably(path_, csv_text(table, static_cast<size_t>(rows), this->columns()));
  look();
  return rows_in_file_;
}

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

State CSVLogger::state_dict() const {
  State state;
  state.set("rows", file_.rows());
  state.set("columns", file_.columns());
  return state;
}

void CSVLogger::load_state_dict(const State& saved) {
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
