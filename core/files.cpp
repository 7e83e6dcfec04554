#include "levin/core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "levin/core/error.h"

namespace levin {

namespace {

// Closes on every way out; close() is checked by the writer before it counts a file as written.
class FileHandle {
 public:
  explicit FileHandle(int fd) : fd_(fd) {}
  ~FileHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  int close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd);
  }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& action, const std::string& path, int error_number) {
  throw Error("cannot " + action + " " + path + ": " + system_error_text(error_number) + ".");
}

// Note [The disk writes while we do]
// Of a large file each piece is handed to the disk as soon as it is in the page cache, so that the disk works while the
// next is copied, and fsync has little left to wait for.
constexpr uint64_t kPieceBytes = 4 << 20;

class Output {
 public:
  Output(int fd, const std::string& path, uint64_t total) : fd_(fd), path_(path), total_(total) {}

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(fd_, bytes.data(), std::min<uint64_t>(bytes.size(), kPieceBytes));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) {
        const int error_number = done < 0 ? errno : ENOSPC;  // a write of nothing means there is no room
        fail("write " + std::to_string(total_) + " bytes to", path_, error_number);
      }
      bytes = bytes.subspan(static_cast<size_t>(done));
      written_ += static_cast<uint64_t>(done);
      if (written_ - handed_over_ >= kPieceBytes) hand_over();
    }
  }

 private:
  // A hint: errors of the disk are fsync's to report.
  void hand_over() {
    (void)::sync_file_range(fd_, static_cast<off_t>(handed_over_), static_cast<off_t>(written_ - handed_over_),
                            SYNC_FILE_RANGE_WRITE);
    handed_over_ = written_;
  }

  int fd_;
  const std::string& path_;
  uint64_t total_;
  uint64_t written_ = 0;
  uint64_t handed_over_ = 0;
};

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void sync_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  FileHandle handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() < 0) fail("sync the folder", folder, errno);
  // Some network file systems cannot sync a folder and say so with EINVAL; there the rename is all one can have.
  if (::fsync(handle.get()) != 0 && errno != EINVAL) fail("sync the folder", folder, errno);
}

// A name of its own for each write, so that two threads that save to one path do not share a file.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter = 0;
  return path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
}

void write_and_sync(const std::string& temporary, std::span<const std::span<const std::byte>> parts) {
  FileHandle handle(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (handle.get() < 0) fail("create", temporary, errno);
  uint64_t total = 0;
  for (const auto& part : parts) total += part.size();
  Output output(handle.get(), temporary, total);
  for (const auto& part : parts) output.write(part);
  if (::fsync(handle.get()) != 0) fail("sync", temporary, errno);
  if (handle.close() != 0) fail("close", temporary, errno);
}

}  // namespace

std::string system_error_text(int error_number) {
  return std::strerror(error_number);
}

void write_file_durably(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  const std::string temporary = temporary_name(path);
  try {
    write_and_sync(temporary, parts);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail("rename " + temporary + " to", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path);
}

void write_file_durably(const std::string& path, const std::string& content) {
  const std::span<const std::byte> part = std::as_bytes(std::span(content));
  write_file_durably(path, std::span(&part, 1));
}

void sync_file(const std::string& path) {
  const FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (handle.get() >= 0) (void)::fdatasync(handle.get());
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
  FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (handle.get() < 0 || ::fstat(handle.get(), &info) != 0) fail("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail("read", path, EISDIR);
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(handle.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) return content;
    if (content.size() + static_cast<size_t>(got) > max_bytes) {
      throw Error("cannot read " + path + ": it holds more than " + std::to_string(max_bytes) + " bytes.");
    }
    content.append(buffer, static_cast<size_t>(got));
  }
}

void make_folder(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) fail("create the folder", path, code.value());
}

}  // namespace levin
