#include "levin/strategies/process/shm_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <sstream>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/strategies/process/rank_error.h"

namespace levin {

// Which memory this is: a process ID in an offer may be another process's in a reader's namespace.
struct ShmSegment::Page {
  std::array<uint64_t, 2> key;
  uint64_t half_bytes;
  uint64_t size;
};

// One rank's, written by it alone but for `sleepers`.
struct alignas(128) ShmSegment::Line {
  std::atomic<uint32_t> announced;  // the last round; wraps around
  std::atomic<uint32_t> sleepers;   // ranks in a futex call on `announced`
  int64_t process;
  int64_t name;                 // the rank that errors call it
  std::array<Label, 2> labels;  // of the rounds in both halves
};

namespace {

constexpr size_t kPageBytes = 4096;
constexpr std::chrono::microseconds kSpin{60};           // about two wake-ups of a thread
constexpr std::chrono::milliseconds kAliveInterval{20};  // a rank that ends wakes nobody

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(what + ": " + std::strerror(error));
}

size_t segment_bytes(int size, size_t half_bytes) {
  return kPageBytes * (1 + static_cast<size_t>(size)) + 2 * half_bytes * static_cast<size_t>(size);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Between processes, hence without FUTEX_PRIVATE_FLAG. Every outcome is followed by another look at the word.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds most) {
  const timespec time = {.tv_sec = most.count() / 1'000'000'000, .tv_nsec = most.count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

struct flock lock_of(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

ShmSegment::ShmSegment(int size, size_t half_bytes) : size_(size), half_bytes_(half_bytes) {
  static_assert(sizeof(Line) <= kPageBytes && std::atomic<uint32_t>::is_always_lock_free);
  descriptor_ = ::memfd_create("levin ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor_ < 0 || ::fchmod(descriptor_, S_IRUSR | S_IWUSR) != 0) fail("memfd_create", errno);
  const size_t bytes = segment_bytes(size, half_bytes);
  // Allocated now and never resized: otherwise a write could end in SIGBUS later.
  const int full = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  if (full != 0) {
    ::close(descriptor_);
    fail("allocating " + std::to_string(bytes >> 10) + " KiB", full);
  }
  ::fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  map(bytes);
  auto* page = new (memory_) Page{{}, half_bytes, static_cast<uint64_t>(size)};
  if (::getrandom(page->key.data(), sizeof(page->key), 0) != sizeof(page->key)) fail("getrandom", errno);
  enter();
}

ShmSegment::ShmSegment(const std::string& offer, int rank, int size) : rank_(rank), size_(size) {
  std::istringstream words(offer);
  std::string path;
  Page expected = {};
  words >> path >> expected.key[0] >> expected.key[1];
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) fail("opening rank 0's memory", errno);
  struct stat status = {};
  const bool is_file = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!is_file || status.st_size < static_cast<off_t>(kPageBytes)) {
    ::close(descriptor_);
    throw Error("opening rank 0's memory: it is another process's file");
  }
  map(static_cast<size_t>(status.st_size));
  const auto* page = reinterpret_cast<const Page*>(memory_);
  half_bytes_ = page->half_bytes;
  const bool fits = half_bytes_ <= bytes_ && bytes_ == segment_bytes(size, half_bytes_);  // the sum may overflow
  if (page->key != expected.key || page->size != static_cast<uint64_t>(size) || !fits) {
    ::munmap(memory_, bytes_);
    ::close(descriptor_);
    throw Error("opening rank 0's memory: it is another process's file");
  }
  enter();
}

ShmSegment::~ShmSegment() {
  ::munmap(memory_, bytes_);
  ::close(descriptor_);
}

void ShmSegment::map(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    ::close(descriptor_);
    fail("mapping " + std::to_string(bytes >> 10) + " KiB", error);
  }
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

// The lock lasts as long as this process has the memory: unlike a process ID, it tells other namespaces too whether it
// lives, and is not given to another process.
void ShmSegment::enter() {
  spin_ = static_cast<unsigned>(size_) <= std::thread::hardware_concurrency() ? kSpin : std::chrono::microseconds(0);
  struct flock lock = lock_of(rank_);
  const bool locked = ::fcntl(descriptor_, F_SETLK, &lock) == 0;
  if (!locked) {
    const int error = errno;
    ::munmap(memory_, bytes_);
    ::close(descriptor_);
    fail("locking shared memory", error);
  }
  line(rank_).process = ::getpid();
  line(rank_).name = rank_;
}

void ShmSegment::set_name(int64_t rank) {
  line(rank_).name = rank;
}

std::string ShmSegment::offer() const {
  const auto* page = reinterpret_cast<const Page*>(memory_);
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_) + " " +
         std::to_string(page->key[0]) + " " + std::to_string(page->key[1]);
}

ShmSegment::Line& ShmSegment::line(int rank) const {
  return *reinterpret_cast<Line*>(memory_ + kPageBytes * (1 + static_cast<size_t>(rank)));
}

std::byte* ShmSegment::half(int rank, uint32_t round) const {
  return memory_ + kPageBytes * (1 + static_cast<size_t>(size_)) +
         half_bytes_ * (2 * static_cast<size_t>(rank) + round % 2);
}

void ShmSegment::announce(const Label& label) {
  Line& own = line(rank_);
  own.labels[next_round_ % 2] = label;
  own.announced.store(next_round_++);
  if (own.sleepers.load() > 0) wake_all(own.announced);
}

bool ShmSegment::has_announced(int rank, uint32_t round) const {
  return static_cast<int32_t>(line(rank).announced.load(std::memory_order_acquire) - round) >= 0;
}

bool ShmSegment::await_all(Clock::time_point until) {
  const uint32_t round = next_round_ - 1;
  for (int rank = 0; rank < size_; ++rank) {
    if (!has_announced(rank, round) && !await(rank, round, until)) return false;
    // All that has announced this round has not begun the one after the next, which overwrites the label.
    if (line(rank).labels[round % 2] != line(rank_).labels[round % 2]) {
      throw RankError(text(rank) + " calls another collective, or with tensors of other sizes or types, than rank " +
                      std::to_string(line(rank_).name));
    }
  }
  return true;
}

bool ShmSegment::await(int rank, uint32_t round, Clock::time_point until) {
  const auto start = Clock::now();
  const auto spun = std::min(until, start + spin_);
  do {
    for (int k = 0; k < 32; ++k) {
      if (has_announced(rank, round)) return true;
      relax();
    }
  } while (Clock::now() < spun);
  Line& other = line(rank);
  for (auto now = Clock::now(); now < until; now = Clock::now()) {
    const uint32_t seen = other.announced.load();
    if (has_announced(rank, round)) return true;
    if (closed_) throw RankError("the process group was closed");
    other.sleepers.fetch_add(1);
    sleep_on(other.announced, seen, std::min<std::chrono::nanoseconds>(kAliveInterval, until - now));
    other.sleepers.fetch_sub(1);
    if (has_announced(rank, round)) return true;
    if (Clock::now() - start >= kAliveInterval && !is_alive(rank) && !has_announced(rank, round)) {
      throw RankError(text(rank) + " has ended");
    }
  }
  return has_announced(rank, round);
}

bool ShmSegment::is_alive(int rank) const {
  struct flock lock = lock_of(rank);
  return rank == rank_ || ::fcntl(descriptor_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::string ShmSegment::missing() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!has_announced(rank, next_round_ - 1)) return text(rank);
  }
  return text(rank_);
}

std::string ShmSegment::text(int rank) const {
  return "rank " + std::to_string(line(rank).name) + " (process " + std::to_string(line(rank).process) + ")";
}

}  // namespace levin
