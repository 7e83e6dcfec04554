#include "levin/core/files/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <regex>
#include <string_view>
#include <utility>

#include "levin/core/files/write_remedy.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

[[noreturn]] void fail(const std::string& action, const std::string& path, int error_number) {
  const std::string remedy = action == "write" ? " " + write_remedy(error_number) : "";  // others name options
  throw Error("cannot " + action + " " + path + ": " + system_error_text(error_number) + "." + remedy);
}

// Otherwise the system would use the part before the byte as the path.
void refuse_nul(const std::string& action, const std::string& path) {
  if (has_no_nul(path)) return;
  throw Error("cannot " + action + " \"" + cut_text(path, 300) + "\": a path cannot hold a NUL byte.");
}

// Names what stands at a path instead of a regular file.
std::string kind_of(mode_t mode) {
  return S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : S_ISLNK(mode) ? "a symbolic link" : "a device";
}

[[noreturn]] void refuse_kind(const std::string& action, const std::string& path, mode_t mode) {
  if (S_ISDIR(mode)) fail(action, path, EISDIR);
  throw Error("cannot " + action + " " + path + ": it is " + kind_of(mode) + ", not a regular file.");
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// A signal handler may interrupt any call; that is not a failure.
template <class Call>
auto retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Returns -1 if the file does not exist. With O_NOFOLLOW in `flags`, a link is refused.
int open_if_regular(const std::string& path, int flags) {
  const std::string action = (flags & O_ACCMODE) == O_RDONLY ? "read" : "write";
  refuse_nul(action, path);
  const int fd = retried([&] { return ::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC, 0666); });
  const int error_number = errno;
  struct stat info {};
  if (fd >= 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  if (fd >= 0) ::close(fd);
  if (fd < 0 && error_number == ENOENT) return fd;
  const int as_opened = (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0;
  if (::fstatat(AT_FDCWD, path.c_str(), &info, as_opened) != 0 || S_ISREG(info.st_mode)) {
    fail(action, path, error_number);
  }
  refuse_kind(action, path, info.st_mode);
}

std::string content_of(int fd, const std::string& path, uint64_t max_bytes) {
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) return content;
    if (content.size() + static_cast<size_t>(got) > max_bytes) {
      throw Error("cannot read " + path + ": it holds more than " + std::to_string(max_bytes) + " bytes.");
    }
    content.append(buffer, static_cast<size_t>(got));
  }
}

// Note [The disk writes while we do]
// Each piece of a large file is written back from the page cache at once. The disk then works while the next
// piece is copied, and fsync has little left to do.
constexpr uint64_t kPieceBytes = 4 << 20;

// The steps of one durable write; each throws Error if it fails.
class DurableWrite {
 public:
  DurableWrite(std::string path, std::span<const std::span<const std::byte>> parts)
      : path_(std::move(path)), parts_(parts) {
    for (const auto& part : parts_) bytes_ += part.size();
  }

  void write_and_sync() {
    create();
    for (const auto& part : parts_) write_part(file_.fd(), part);
    if (retried([&] { return ::fsync(file_.fd()); }) != 0) fail_with("syncing it");
    // Errors that only close() reports are reported for a duplicate descriptor too; the file itself stays open, for its
    // lock, until it is renamed. An interrupted close() still closes, and the data are on the disk.
    FileDescriptor copy(::fcntl(file_.fd(), F_DUPFD_CLOEXEC, 0));
    if (!copy || (copy.close() != 0 && errno != EINTR)) fail_with("closing it");
  }

  void rename_and_sync_folder() {
    const std::string folder = folder_of(path_);
    // Opened before the rename: after it only the sync can fail.
    const FileDescriptor handle(retried([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!handle) fail_with("opening its folder");
    if (retried([&] { return ::rename(temporary_.c_str(), path_.c_str()); }) != 0)
      fail_with("renaming it from a temporary name");
    // Some network file systems cannot sync a folder and report EINVAL; there the rename must suffice.
    if (retried([&] { return ::fsync(handle.get()); }) != 0 && errno != EINVAL) {
      const std::string cause = system_error_text(errno);
      throw Error("wrote " + std::to_string(bytes_) + " bytes to " + path_ + ", but cannot sync the folder " + folder +
                  ": " + cause + ". After a power failure the previous contents may be back.");
    }
  }

  void remove_temporary() {
    if (file_) ::unlink(temporary_.c_str());
  }

  [[nodiscard]] LockedFile take_file() { return std::move(file_); }

 private:
  void create() {
    check_replaceable(path_);
    constexpr int most_tries = 10;  // a new name each time: one may exist already, or be taken for a leftover
    for (int tries = 0; !file_; ++tries) {
      temporary_ = temporary_name(path_);
      file_ = LockedFile::create(temporary_);
      const bool again = tries < most_tries && (errno == EEXIST || errno == EAGAIN);
      if (!file_ && !again) fail_with("creating a file in its folder");
    }
  }

  void write_part(int fd, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min<uint64_t>(bytes.size(), kPieceBytes));
      if (!write_all(fd, {reinterpret_cast<const char*>(piece.data()), piece.size()})) {
        fail_with("writing it");
      }
      bytes = bytes.subspan(piece.size());
      written_ += piece.size();
      if (written_ - handed_over_ >= kPieceBytes) hand_over(fd);
    }
  }

  // A hint: errors of the disk are fsync's to report.
  void hand_over(int fd) {
    (void)::sync_file_range(fd, static_cast<off_t>(handed_over_), static_cast<off_t>(written_ - handed_over_),
                            SYNC_FILE_RANGE_WRITE);
    handed_over_ = written_;
  }

  [[noreturn]] void fail_with(const std::string& step) {
    const int number = errno;
    const std::string cause = system_error_text(number) + ". " + write_remedy(number);
    std::error_code ignored;
    const bool old_file = std::filesystem::is_regular_file(path_, ignored);
    throw Error("cannot write " + std::to_string(bytes_) + " bytes to " + path_ + " (" + step + "): " + cause +
                (old_file ? " The previous file is intact." : ""));
  }

  uint64_t written_ = 0;
  uint64_t handed_over_ = 0;
  std::string path_;
  std::string temporary_;
  LockedFile file_;
  std::span<const std::span<const std::byte>> parts_;
  uint64_t bytes_ = 0;
};

}  // namespace

namespace fs = std::filesystem;

namespace {

// Absolute, without links, "." and ".."; parts that do not exist yet count as folders. Empty on failure.
fs::path resolved(const fs::path& path) {
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code);
  if (code) return {};
  fs::path whole = fs::weakly_canonical(absolute, code);
  if (code) return {};
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

bool is_path_below(const std::string& path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

std::string absolute_path(const std::string& path) {
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code);
  return (code ? fs::path(path) : absolute).lexically_normal().string();
}

bool is_inside(const std::string& path, const std::string& folder) {
  if (!has_no_nul(path) || !has_no_nul(folder)) return false;
  const fs::path name = fs::path(path).filename();
  if (name.empty() || name == "." || name == "..") return false;
  const fs::path home = resolved(folder);
  const fs::path parent = resolved(fs::path(path).parent_path());
  if (home.empty() || parent.empty()) return false;
  return std::mismatch(home.begin(), home.end(), parent.begin(), parent.end()).first == home.end();
}

void check_joined_name(const std::string& option, const std::string& name, const std::string& folder) {
  const std::filesystem::path path(name);
  if (path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end()) return;
  throw ConfigError(option + ": \"" + cut_text(name, 200) + "\" leads out of " + folder +
                    ". Write a name without \"..\" that does not begin with /, and choose the folder with " + folder +
                    ".");
}

namespace fs = std::filesystem;

namespace {

uint64_t unforeseeable_number() {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) return number;
  std::random_device device;  // a kernel without the call, or just started
  return uint64_t{device()} << 32 | device();
}

// Whether the path still names the open file: it may have been removed before it was locked.
bool still_names(const char* path, int fd) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path, &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

int locked(int fd) {
  int result = ::flock(fd, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR) result = ::flock(fd, LOCK_EX | LOCK_NB);
  return result;
}

}  // namespace

std::string temporary_name(const std::string& path) {
  return path + ".tmp-" + formatted("%016lx", unforeseeable_number());
}

bool is_temporary_name(const std::string& name) {
  // The second form: older names, with process id and number.
  static const std::regex names(R"([\s\S]+\.tmp-([0-9a-f]{16}|[0-9]{1,9}(-[0-9]+)?))");
  return name.size() <= 255 && std::regex_match(name, names);
}

LockedFile::~LockedFile() {
  if (fd_ >= 0) ::close(fd_);
}

LockedFile::LockedFile(LockedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

LockedFile& LockedFile::operator=(LockedFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

LockedFile LockedFile::create(const std::string& path) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return {};
  LockedFile file(fd);
  const bool taken = locked(fd) != 0 && errno == EWOULDBLOCK;  // a cleaner was quicker, and removes it
  if (!taken && still_names(path.c_str(), fd)) return file;
  errno = EAGAIN;
  return {};
}

LockedFile LockedFile::take_over(const std::string& path) {
  constexpr int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int fd = ::open(path.c_str(), O_RDWR | flags);  // network file systems require write access for a lock
  if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | flags);
  if (fd < 0) return {};
  LockedFile file(fd);
  struct stat info {};
  const bool is_file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!is_file || locked(fd) != 0 || !still_names(path.c_str(), fd)) return {};
  return file;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator entry(folder, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void remove_if_abandoned(const std::vector<std::string>& paths) {
  std::vector<LockedFile> files;
  for (const std::string& path : paths) {
    files.push_back(LockedFile::take_over(path));
    std::error_code code;
    if (!files.back() && fs::exists(fs::symlink_status(path, code))) return;
  }
  for (const std::string& path : paths) (void)::unlink(path.c_str());
}

void remove_leftovers(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    if (!is_temporary_name(name)) continue;
    const std::string path = (fs::path(folder) / name).string();
    std::error_code code;
    // A link cannot be locked, and keeps its name only briefly: its creator tries again.
    if (fs::is_symlink(fs::symlink_status(path, code))) (void)::unlink(path.c_str());
    remove_if_abandoned({path});
  }
}

std::string system_error_text(int error_number) {
  return std::strerror(error_number);
}

LockedFile write_file_durably(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  refuse_nul("write", path);
  DurableWrite write(path, parts);
  try {
    write.write_and_sync();
    write.rename_and_sync_folder();
    return write.take_file();
  } catch (...) {
    write.remove_temporary();
    throw;
  }
}

LockedFile write_file_durably(const std::string& path, const std::string& content) {
  const std::span<const std::byte> part = std::as_bytes(std::span(content));
  return write_file_durably(path, std::span(&part, 1));
}

void write_output(const std::string& path, const std::string& content) {
  refuse_nul("write", path);
  struct stat info {};
  const bool is_stream = ::stat(path.c_str(), &info) == 0 && (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode));
  if (!is_stream) {
    (void)write_file_durably(followed_links(path), content);
    return;
  }
  FileDescriptor handle(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  if (!handle || !write_all(handle.get(), content) || handle.close() != 0) fail("write", path, errno);
}

std::string followed_links(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int most_links = 40;  // as in Linux; beyond it the links are a loop, and the path is an error to open
  fs::path followed = path;
  for (int k = 0; k <= most_links; ++k) {
    std::error_code no_link;
    const fs::path target = fs::read_symlink(followed, no_link);
    if (no_link) return followed.string();
    followed = followed.parent_path() / target;  // an absolute target stands alone
  }
  fail("write", path, ELOOP);
}

void check_replaceable(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode) || S_ISDIR(info.st_mode)) {
    return;  // renaming a file to a folder fails by itself
  }
  throw Error("cannot write " + path + ": it is " + kind_of(info.st_mode) +
              ", and only regular files are replaced. Remove it, or write to another path.");
}

int open_regular_file(const std::string& path, int flags) {
  return open_if_regular(path, flags | O_NOFOLLOW);
}

std::optional<std::string> read_regular_file(const std::string& path, uint64_t max_bytes) {
  const FileDescriptor handle(open_regular_file(path, O_RDONLY));
  if (!handle) return std::nullopt;
  return content_of(handle.get(), path, max_bytes);
}

void sync_file(const std::string& path) {
  const FileDescriptor handle(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (handle) (void)::fdatasync(handle.get());
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
  const FileDescriptor handle(open_if_regular(path, O_RDONLY));
  if (!handle) fail("read", path, ENOENT);
  return content_of(handle.get(), path, max_bytes);
}

std::string read_input(const std::string& path, uint64_t max_bytes) {
  refuse_nul("read", path);
  const FileDescriptor handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!handle) fail("read", path, errno);
  return content_of(handle.get(), path, max_bytes);  // of a folder, the first read fails
}

void make_folder(const std::string& path) {
  refuse_nul("create the folder", path);
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) fail("create the folder", path, code.value());
}

}  // namespace levin
