// libc's functions that touch files, with a fault put in front of them: see io_faults.h. No allocation here, because
// any code at any moment may come through.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "support/io_faults_log.h"

namespace levin::test {

namespace {

struct Armed {
  const char* folder = nullptr;
  IoPlan plan;
  IoFaultLog* log = nullptr;
};
Armed armed;  // written before the flag below, read after it
std::atomic<bool> is_armed = false;

enum class Verdict { pass, refuse, halve, die_midway };

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

int error_number_of(IoFault fault) {
  switch (fault) {
    case IoFault::no_space: return ENOSPC;
    case IoFault::io_error: return EIO;
    case IoFault::quota: return EDQUOT;
    case IoFault::interrupted: return EINTR;
    default: return 0;
  }
}

bool is_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

bool frees(std::string_view name) {
  return name == "close" || name == "unlink" || name == "remove";
}

// Counts the call and decides what happens to it.
Verdict judge(std::string_view name, const char* path) {
  if (!is_armed.load() || !is_below(path, armed.folder)) return Verdict::pass;
  IoFaultLog& log = *armed.log;
  const int call = ++log.count;
  if (call <= IoFaultLog::kMaxCalls) {
    IoFaultLog::Call& entry = log.calls[call - 1];
    std::snprintf(entry.name, sizeof entry.name, "%.*s", static_cast<int>(name.size()), name.data());
    std::snprintf(entry.path, sizeof entry.path, "%s", path);
  }
  const IoPlan& plan = armed.plan;
  const bool now = call == plan.call || (plan.lasting && call > plan.call && !frees(name));
  if (plan.fault == IoFault::none || plan.call == 0 || !now) return Verdict::pass;
  log.injected = true;
  switch (plan.fault) {
    case IoFault::kill: die();
    case IoFault::kill_midway: return Verdict::die_midway;
    case IoFault::short_write: return Verdict::halve;
    default: return Verdict::refuse;
  }
}

// The original function of this name, which ours wraps.
template <class Function>
Function* behind(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

struct Path {
  char text[2 * PATH_MAX] = {};

  explicit Path(int fd) {
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (is_armed.load() && ::readlink(link, text, sizeof text - 1) < 0) text[0] = 0;
  }
  Path(int folder, const char* name) : Path(folder) {
    if (!is_armed.load() || name == nullptr) return;
    if (name[0] == '/') text[0] = 0;
    if (name[0] != '/' && folder == AT_FDCWD && ::getcwd(text, PATH_MAX) == nullptr) text[0] = 0;
    const size_t used = std::strlen(text);
    std::snprintf(text + used, sizeof text - used, "%s%s", name[0] == '/' ? "" : "/", name);
  }
};

// Calls without a size: refused, or done (and then perhaps the process' last).
template <class Result, class Real>
Result decide(const char* name, const Path& path, Result refusal, Real real) {
  const Verdict verdict = judge(name, path.text);
  if (verdict == Verdict::refuse) {
    errno = error_number_of(armed.plan.fault);
    return refusal;
  }
  const Result result = real();
  if (verdict == Verdict::die_midway) die();
  return result;
}

// real(count) writes `count` bytes.
template <class Real>
ssize_t decide_write(const char* name, int fd, size_t count, Real real) {
  const Verdict verdict = judge(name, Path(fd).text);
  if (verdict == Verdict::refuse) {
    errno = error_number_of(armed.plan.fault);
    return -1;
  }
  if (verdict == Verdict::pass) return real(count);
  const ssize_t done = count > 1 ? real(count / 2) : real(count);
  if (verdict == Verdict::die_midway) die();
  return done;
}

// A program under LD_PRELOAD is armed by its environment: "folder\ncall\nfault\nlasting\nlog".
[[gnu::constructor]] void arm_from_environment() {
  static char text[2 * PATH_MAX];
  const char* variable = std::getenv(kIoFaultsVariable);
  if (variable == nullptr) return;
  std::snprintf(text, sizeof text, "%s", variable);
  char* rest = text;
  const char* folder = ::strsep(&rest, "\n");
  IoPlan plan;
  plan.call = std::atoi(::strsep(&rest, "\n"));
  plan.fault = static_cast<IoFault>(std::atoi(::strsep(&rest, "\n")));
  plan.lasting = std::atoi(::strsep(&rest, "\n")) != 0;
  const int fd = ::open(rest, O_RDWR | O_CLOEXEC);
  void* log = ::mmap(nullptr, sizeof(IoFaultLog), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (log != MAP_FAILED) arm_io_faults(folder, plan, static_cast<IoFaultLog*>(log));
}

mode_t mode_of(int flags, va_list& arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

void arm_io_faults(const char* folder, const IoPlan& plan, IoFaultLog* log) {
  armed = {folder, plan, log};
  is_armed = true;
}

void disarm_io_faults() {
  is_armed = false;
}

}  // namespace levin::test

// ---- what stands in front of libc

using namespace levin::test;  // NOLINT(google-build-using-namespace): C functions live in no namespace

// NOLINTBEGIN(cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp): libc's own names and signatures are the point
extern "C" {

#define LEVIN_OPEN(NAME)                                                                      \
  int NAME(const char* path, int flags, ...) {                                                \
    va_list arguments;                                                                        \
    va_start(arguments, flags);                                                               \
    const mode_t mode = mode_of(flags, arguments);                                            \
    va_end(arguments);                                                                        \
    static auto* real = behind<int(const char*, int, ...)>(#NAME);                            \
    return decide("open", Path(AT_FDCWD, path), -1, [&] { return real(path, flags, mode); }); \
  }
LEVIN_OPEN(open)
LEVIN_OPEN(open64)

#define LEVIN_OPENAT(NAME)                                                                          \
  int NAME(int folder, const char* path, int flags, ...) {                                          \
    va_list arguments;                                                                              \
    va_start(arguments, flags);                                                                     \
    const mode_t mode = mode_of(flags, arguments);                                                  \
    va_end(arguments);                                                                              \
    static auto* real = behind<int(int, const char*, int, ...)>(#NAME);                             \
    return decide("open", Path(folder, path), -1, [&] { return real(folder, path, flags, mode); }); \
  }
LEVIN_OPENAT(openat)
LEVIN_OPENAT(openat64)

int creat(const char* path, mode_t mode) {
  static auto* real = behind<decltype(creat)>("creat");
  return decide("open", Path(AT_FDCWD, path), -1, [&] { return real(path, mode); });
}

FILE* fopen(const char* path, const char* mode) {
  static auto* real = behind<decltype(fopen)>("fopen");
  return decide("open", Path(AT_FDCWD, path), static_cast<FILE*>(nullptr), [&] { return real(path, mode); });
}

FILE* fopen64(const char* path, const char* mode) {
  static auto* real = behind<decltype(fopen64)>("fopen64");
  return decide("open", Path(AT_FDCWD, path), static_cast<FILE*>(nullptr), [&] { return real(path, mode); });
}

ssize_t read(int fd, void* bytes, size_t count) {
  static auto* real = behind<decltype(read)>("read");
  return decide_write("read", fd, count, [&](size_t some) { return real(fd, bytes, some); });
}

ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  static auto* real = behind<decltype(pread)>("pread");
  return decide_write("read", fd, count, [&](size_t some) { return real(fd, bytes, some, offset); });
}

ssize_t pread64(int fd, void* bytes, size_t count, off64_t offset) {
  static auto* real = behind<decltype(pread64)>("pread64");
  return decide_write("read", fd, count, [&](size_t some) { return real(fd, bytes, some, offset); });
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static auto* real = behind<decltype(write)>("write");
  return decide_write("write", fd, count, [&](size_t some) { return real(fd, bytes, some); });
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  static auto* real = behind<decltype(pwrite)>("pwrite");
  return decide_write("write", fd, count, [&](size_t some) { return real(fd, bytes, some, at); });
}

ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t at) {
  static auto* real = behind<decltype(pwrite64)>("pwrite64");
  return decide_write("write", fd, count, [&](size_t some) { return real(fd, bytes, some, at); });
}

ssize_t writev(int fd, const iovec* parts, int num_parts) {
  static auto* real = behind<decltype(writev)>("writev");
  static auto* real_write = behind<decltype(write)>("write");
  size_t total = 0;
  for (int i = 0; i < num_parts; ++i) total += parts[i].iov_len;
  return decide_write("write", fd, total, [&](size_t some) -> ssize_t {
    if (some == total) return real(fd, parts, num_parts);
    for (int i = 0; i < num_parts; ++i) {  // some bytes of the first part that has any
      if (parts[i].iov_len > 0) return real_write(fd, parts[i].iov_base, (parts[i].iov_len + 1) / 2);
    }
    return 0;
  });
}

int fallocate(int fd, int mode, off_t at, off_t size) {
  static auto* real = behind<decltype(fallocate)>("fallocate");
  return decide("fallocate", Path(fd), -1, [&] { return real(fd, mode, at, size); });
}

int ftruncate(int fd, off_t size) noexcept {
  static auto* real = behind<int(int, off_t)>("ftruncate");
  return decide("ftruncate", Path(fd), -1, [&] { return real(fd, size); });
}

int fsync(int fd) {
  static auto* real = behind<decltype(fsync)>("fsync");
  return decide("fsync", Path(fd), -1, [&] { return real(fd); });
}

int fdatasync(int fd) {
  static auto* real = behind<decltype(fdatasync)>("fdatasync");
  return decide("fsync", Path(fd), -1, [&] { return real(fd); });
}

// Linux closes the descriptor regardless of close()'s result.
int close(int fd) {
  static auto* real = behind<decltype(close)>("close");
  const Path path(fd);
  const Verdict verdict = judge("close", path.text);
  const int result = real(fd);
  if (verdict == Verdict::die_midway) die();
  if (verdict != Verdict::refuse) return result;
  errno = error_number_of(armed.plan.fault);
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  static auto* real = behind<int(const char*, const char*)>("rename");
  return decide("rename", Path(AT_FDCWD, to), -1, [&] { return real(from, to); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  static auto* real = behind<int(int, const char*, int, const char*)>("renameat");
  return decide("rename", Path(to_folder, to), -1, [&] { return real(from_folder, from, to_folder, to); });
}

int link(const char* from, const char* to) noexcept {
  static auto* real = behind<int(const char*, const char*)>("link");
  return decide("link", Path(AT_FDCWD, to), -1, [&] { return real(from, to); });
}

int unlink(const char* path) noexcept {
  static auto* real = behind<int(const char*)>("unlink");
  return decide("unlink", Path(AT_FDCWD, path), -1, [&] { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* real = behind<int(int, const char*, int)>("unlinkat");
  return decide("unlink", Path(folder, path), -1, [&] { return real(folder, path, flags); });
}

int remove(const char* path) noexcept {
  static auto* real = behind<int(const char*)>("remove");
  return decide("remove", Path(AT_FDCWD, path), -1, [&] { return real(path); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* real = behind<int(const char*, mode_t)>("mkdir");
  return decide("mkdir", Path(AT_FDCWD, path), -1, [&] { return real(path, mode); });
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  static auto* real = behind<int(int, const char*, mode_t)>("mkdirat");
  return decide("mkdir", Path(folder, path), -1, [&] { return real(folder, path, mode); });
}

}  // extern "C"
// NOLINTEND(cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp)
