#include "levin/loggers/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"

namespace levin {

namespace {

constexpr int64_t kMaxLeftOut = 4095;

std::string capitalized(std::string word) {
  if (!word.empty() && word[0] >= 'a' && word[0] <= 'z') word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

constexpr size_t kMaxDelayed = 1 << 20;
constexpr size_t kMaxWaiting = 64 << 20;

}  // namespace

void DiskPatience::failed(const std::string& cause) {
  if (!std::exchange(failing_, true)) {
    Console::instance().error(logger_ + ": " + cause + " " + capitalized(unit_) +
                              "s are kept in memory until they can be written; training continues.");
  }
  cause_ = cause;
  leave_out_ = std::min(2 * leave_out_ + 1, kMaxLeftOut);
  left_out_ = 0;
}

void DiskPatience::wrote(const std::string& path, int64_t count) {
  left_out_ = leave_out_ = 0;
  if (!std::exchange(failing_, false)) return;
  const int64_t lost = std::exchange(lost_, 0);
  Console::instance().print(
      logger_ + ": " + path + " can be written again. It has the " + count_of(count, unit_) + " that waited" +
      (lost > 0 ? "; " + count_of(lost, unit_ + " before them is", unit_ + "s before them are") + " lost." : "."));
}

void DiskPatience::give_up() {
  left_out_ = leave_out_ = 0;
  const int64_t lost = std::exchange(lost_, 0);
  if (!std::exchange(failing_, false) || lost == 0) return;
  Console::instance().error(logger_ + ": " + count_of(lost, lost_name_.first + " is", lost_name_.second + " are") +
                            " lost: " + cause_);
}

void AppendFile::set_path(std::string path, std::string opening) {
  path_ = std::move(path);
  opening_ = std::move(opening);
  struct stat info {};
  created_ = ::stat(path_.c_str(), &info) == 0;
  in_file_ = created_ ? static_cast<uint64_t>(info.st_size) : 0;
  torn_ = false;
  written_.reset();
  drop_waiting();
}

uint64_t AppendFile::size() const {
  const bool opens = in_file_ == 0 && !waiting_.empty();
  return in_file_ + waiting_.size() + (opens ? opening_.size() : 0);
}

void AppendFile::add(std::string_view record) {
  waiting_ += record;
  lengths_.push_back(static_cast<uint32_t>(record.size()));
  if (patience_.failing() && waiting_.size() > kMaxWaiting) drop_excess();
}

// A quarter at once: each call moves the rest.
void AppendFile::drop_excess() {
  size_t count = 0;
  size_t bytes = 0;
  while (waiting_.size() - bytes > kMaxWaiting / 4 * 3) bytes += lengths_[count++];
  forget_first(count, bytes);
  patience_.add_lost(static_cast<int64_t>(count));
}

void AppendFile::forget_first(size_t count, size_t bytes) {
  waiting_.erase(0, bytes);
  lengths_.erase(lengths_.begin(), lengths_.begin() + static_cast<ptrdiff_t>(count));
}

void AppendFile::drop_waiting() {
  waiting_.clear();
  lengths_.clear();
}

void AppendFile::write_if_due() {
  const bool due = !written_ || Seconds(std::chrono::steady_clock::now() - *written_).count() >= flush_secs_;
  if (due || waiting_.size() >= kMaxDelayed) write();
}

void AppendFile::write() {
  if (waiting_.empty() || patience_.skips_write()) return;
  written_ = std::chrono::steady_clock::now();
  const auto count = static_cast<int64_t>(lengths_.size());
  try {
    append();
  } catch (const Error& error) {
    return patience_.failed(error.what());
  }
  patience_.wrote(path_, count);
}

int AppendFile::open_file() {
  constexpr int flags = O_WRONLY | O_APPEND;
  if (created_) {
    const int fd = open_regular_file(path_, flags);
    if (fd >= 0) return fd;
  }
  const int fd = open_regular_file(path_, flags | O_CREAT);
  if (fd >= 0 && created_) {
    Console::instance().warn(logger_ + ": " + path_ + " was removed. The " + std::to_string(in_file_) +
                             " bytes that it held are lost; it is started again.");
  }
  return fd;
}

void AppendFile::append() {
  const auto fail = [this](const char* action, int cause) {
    throw Error(std::string("cannot ") + action + " " + path_ + ": " + system_error_text(cause) + ".");
  };
  const FileDescriptor file(open_file());
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) fail("write", errno);  // its folder is gone
  created_ = true;
  if (torn_ && static_cast<uint64_t>(info.st_size) > in_file_) {
    if (::ftruncate(file.get(), static_cast<off_t>(in_file_)) != 0) fail("shorten", errno);
    info.st_size = static_cast<off_t>(in_file_);
  }
  in_file_ = static_cast<uint64_t>(info.st_size);
  const bool opens = in_file_ == 0 && !opening_.empty();
  const std::string opened = opens ? opening_ + waiting_ : "";
  const std::string& text = opens ? opened : waiting_;
  if (!write_all(file.get(), text)) {
    const int cause = errno;
    keep_what_fits(file.get(), in_file_, opens ? opening_.size() : 0);
    fail("write", cause);
  }
  in_file_ += text.size();
  torn_ = false;
  drop_waiting();
}

// After a failed write: the whole records that the disk has taken stay, and a part of another one is removed.
void AppendFile::keep_what_fits(int fd, uint64_t size_before, size_t opening_bytes) {
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  const uint64_t taken = known ? static_cast<uint64_t>(info.st_size) - size_before : 0;
  size_t count = 0;
  size_t bytes = 0;
  while (count < lengths_.size() && opening_bytes + bytes + lengths_[count] <= taken) bytes += lengths_[count++];
  if (count > 0) in_file_ = size_before + opening_bytes + bytes;
  torn_ = ::ftruncate(fd, static_cast<off_t>(in_file_)) != 0;
  forget_first(count, bytes);
}

void AppendFile::finish() {
  patience_.try_next();
  write();
  if (patience_.failing()) patience_.add_lost(static_cast<int64_t>(lengths_.size()));
  if (patience_.failing()) drop_waiting();
  patience_.give_up();
}

int64_t cut_file(const std::string& path, int64_t bytes) {
  const FileDescriptor file(open_regular_file(path, O_WRONLY));
  if (!file) return -1;
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw Error("cannot read " + path + ": " + system_error_text(errno) + ".");
  if (info.st_size > bytes && ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    throw Error("cannot shorten " + path + " to " + std::to_string(bytes) + " bytes: " + system_error_text(errno) +
                ".");
  }
  return info.st_size;
}

}  // namespace levin
