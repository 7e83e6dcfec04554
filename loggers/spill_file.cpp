#include "levin/loggers/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"

namespace levin {

namespace {

constexpr int64_t kWorthCompacting = 4 << 20;  // bytes of delivered lines before the file gives them back
constexpr size_t kPositionSize = 128;          // the position is replaced in place, by one write of this size

constexpr uint64_t kMaxCounted = uint64_t{1} << 48;  // events or values; larger numbers are damaged

// A member that counts something; nullopt: there is none.
std::optional<int64_t> count_in(const nlohmann::json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end() || !found->is_number_unsigned() || found->get<uint64_t>() > kMaxCounted) return std::nullopt;
  return found->get<int64_t>();
}

std::string within_sentence(const Error& error) {
  std::string text = error.what();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// The number of a line and its values; the line must be whole.
bool read_event(const std::string& line, SpilledEvent& event) {
  const nlohmann::json json = parse_json(line);
  const auto number = count_in(json, "n"), values = count_in(json, "v");
  if (!number || !values) return false;
  event = {*number, *values, line};
  return true;
}

// Numbers of events grow: keeps as many as do (the longest increasing subsequence, by patience sorting), so that a
// number that is damaged hides no other event. Returns how many are left out.
template <class Places>
int64_t keep_growing(Places& places) {
  std::vector<size_t> ends;  // ends[k]: where k + 1 growing numbers with the lowest end do end
  std::vector<size_t> before(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto place = std::lower_bound(ends.begin(), ends.end(), places[i].number,
                                        [&](size_t end, int64_t number) { return places[end].number < number; });
    before[i] = place == ends.begin() ? i : place[-1];
    place == ends.end() ? ends.push_back(i) : void(*place = i);
  }
  Places kept;
  for (size_t k = 0, i = ends.empty() ? 0 : ends.back(); k < ends.size(); ++k, i = before[i])
    kept.push_front(places[i]);
  places.swap(kept);
  return static_cast<int64_t>(kept.size() - places.size());
}

}  // namespace

SpillFile::SpillFile(const std::string& folder, int64_t most_bytes)
    : path_((std::filesystem::path(folder) / "outbox.jsonl").string()),
      position_path_((std::filesystem::path(folder) / "outbox.position").string()),
      most_bytes_(most_bytes) {
  read_position();
  read_lines();
}

SpillFile::~SpillFile() {
  flush_memory();
  if (fd_ >= 0) ::close(fd_);
  if (position_fd_ >= 0) ::close(position_fd_);
}

void SpillFile::read_position() {
  const auto text = read_regular_file(position_path_, 1 << 16);  // a link may lead to any file
  if (!text) return;
  // What is not there was lost in a power failure: what was delivered is delivered again.
  const nlohmann::json json = parse_json(*text);
  acknowledged_ = count_in(json, "acknowledged").value_or(0);
  counts_ = {count_in(json, "dropped").value_or(0), count_in(json, "refused").value_or(0)};
  last_number_ = acknowledged_;
}

void SpillFile::read_lines() {
  auto content = read_regular_file(path_);
  if (!content) return;
  std::string text = std::move(*content);
  const size_t last_begin = text.rfind('\n') + 1;  // 0: there is one line
  SpilledEvent event;
  if (last_begin < text.size() && read_event(text.substr(last_begin), event)) {  // only its end is missing
    const FileDescriptor whole(open_regular_file(path_, O_WRONLY | O_APPEND));
    if (write_all(whole.get(), "\n")) text += '\n';
  }
  size_t begin = 0;
  int64_t damaged = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    if (!read_event(line, event)) {
      ++damaged;
    } else if (event.number > acknowledged_) {
      index_.push_back({event.number, event.values, static_cast<int64_t>(begin), line.size() + 1});
    }
    begin = end + 1;
  }
  damaged += keep_growing(index_);
  for (const Place& place : index_) {
    last_number_ = place.number;
    waiting_bytes_ += static_cast<int64_t>(place.size);
    waiting_values_ += place.values;
  }
  size_ = static_cast<int64_t>(begin);
  if (damaged > 0) {
    Console::instance().warn(path_ + ": " + count_of(damaged, "line is", "lines are") +
                             " damaged, and left out. The other lines are sent.");
  }
  if (begin == text.size()) return;
  const FileDescriptor torn(open_regular_file(path_, O_WRONLY));
  if (::ftruncate(torn.get(), static_cast<off_t>(begin)) != 0)
    throw Error("cannot remove an incomplete line from " + path_ + ": " + system_error_text(errno) + ".");
}

void SpillFile::open_file() {
  if (fd_ < 0) fd_ = open_regular_file(path_, O_RDWR | O_APPEND | O_CREAT);
}

// All of it or nothing.
bool SpillFile::append(const std::string& line) {
  try {
    open_file();
  } catch (const Error& error) {
    problem_ = within_sentence(error);
    return false;
  }
  if (fd_ >= 0 && write_all(fd_, line)) {
    size_ += static_cast<int64_t>(line.size());
    problem_.clear();
    return true;
  }
  problem_ = "cannot write " + path_ + ": " + system_error_text(errno);
  if (fd_ >= 0 && ::ftruncate(fd_, size_) != 0) problem_ += "; nor remove the incomplete line";
  return false;
}

void SpillFile::flush_memory() {
  while (!memory_.empty()) {
    const size_t at = index_.size() - memory_.size();
    const int64_t offset = size_;
    if (!append(memory_.front())) return;
    index_[at].offset = offset;
    memory_.pop_front();
  }
}

bool SpillFile::push(const std::string& members, int64_t values) {
  const int64_t number = last_number_ + 1;
  std::string line = "{\"n\":" + std::to_string(number) + ",\"v\":" + std::to_string(values) + "," + members + "}\n";
  const auto size = static_cast<int64_t>(line.size());
  if (waiting_bytes_ + size > most_bytes_) {
    counts_.dropped += values;
    write_position();
    return false;
  }
  last_number_ = number;
  waiting_bytes_ += size;
  waiting_values_ += values;
  index_.push_back({number, values, -1, line.size()});
  memory_.push_back(std::move(line));
  flush_memory();
  return true;
}

std::string SpillFile::line_of(size_t index, size_t& in_memory) const {
  const Place& place = index_[index];
  if (place.offset < 0) return memory_[in_memory++];
  std::string line(place.size, '\0');
  size_t got = 0;
  const int fd = fd_ >= 0 ? fd_ : ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  while (got < line.size()) {
    const ssize_t done = ::pread(fd, line.data() + got, line.size() - got, place.offset + static_cast<off_t>(got));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) break;
    got += static_cast<size_t>(done);
  }
  if (fd != fd_ && fd >= 0) ::close(fd);
  line.resize(got);
  return line;
}

std::vector<SpilledEvent> SpillFile::next(size_t max_events, size_t max_bytes) const {
  std::vector<SpilledEvent> events;
  size_t bytes = 0;
  size_t in_memory = 0;
  for (size_t k = 0; k < index_.size() && events.size() < max_events; ++k) {
    if (!events.empty() && bytes + index_[k].size > max_bytes) break;
    bytes += index_[k].size;
    events.push_back({index_[k].number, index_[k].values, line_of(k, in_memory)});
  }
  return events;
}

void SpillFile::acknowledge(int64_t number, int64_t refused) {
  while (!index_.empty() && index_.front().number <= number) {
    waiting_bytes_ -= static_cast<int64_t>(index_.front().size);
    waiting_values_ -= index_.front().values;
    if (index_.front().offset < 0) memory_.pop_front();
    index_.pop_front();
  }
  acknowledged_ = std::max(acknowledged_, number);
  counts_.refused += refused;
  write_position();
  forget_delivered();
}

// After a failure, events are delivered once more at the next start.
void SpillFile::write_position() {
  std::string text =
      nlohmann::json{{"acknowledged", acknowledged_}, {"dropped", counts_.dropped}, {"refused", counts_.refused}}
          .dump();
  text.resize(kPositionSize - 1, ' ');
  text += '\n';
  try {
    if (position_fd_ < 0) position_fd_ = open_regular_file(position_path_, O_WRONLY | O_CREAT);
  } catch (const Error& error) {
    problem_ = within_sentence(error);
  }
  if (position_fd_ >= 0 && ::pwrite(position_fd_, text.data(), text.size(), 0) < 0) problem_ = system_error_text(errno);
}

void SpillFile::forget_delivered() {
  if (size_ - waiting_bytes_ < kWorthCompacting || size_ - waiting_bytes_ < waiting_bytes_) return;
  try {
    replace_tail([](const SpilledEvent&) { return false; });
  } catch (const Error&) {
    // no room for both files; tried again with the next answer
  }
}

// Writes a new file of the undelivered events that stay.
int64_t SpillFile::replace_tail(const std::function<bool(const SpilledEvent&)>& is_dropped) {
  std::string text;
  std::deque<Place> kept;
  int64_t dropped = 0;
  int64_t values = 0;
  for (SpilledEvent& event : next(index_.size(), SIZE_MAX)) {
    if (is_dropped(event)) {
      ++dropped;
      continue;
    }
    if (event.line.empty() || event.line.back() != '\n') event.line += '\n';
    kept.push_back({event.number, event.values, static_cast<int64_t>(text.size()), event.line.size()});
    values += event.values;
    text += event.line;
  }
  if (index_.empty() && size_ == 0) return 0;
  (void)write_file_durably(path_, text);
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  index_ = std::move(kept);
  memory_.clear();
  size_ = waiting_bytes_ = static_cast<int64_t>(text.size());
  waiting_values_ = values;
  return dropped;
}

void SpillFile::sync() {
  flush_memory();
  if (fd_ >= 0) (void)::fdatasync(fd_);
}

}  // namespace levin
