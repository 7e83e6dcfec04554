#include "nccl_meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace simulated {

namespace {

constexpr size_t kHeadBytes = 4096;
constexpr size_t kPlaceBytes = kHeadBytes + Meeting::kSlotBytes;  // of a rank

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

struct Meeting::Shared {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> round;  // of meetings so far
};

struct Meeting::Place {
  pid_t process;
  std::atomic<bool> has_left;
  CollectiveCall call;
};

std::string CollectiveCall::text() const {
  static constexpr const char* kNames[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"};
  return std::string(kNames[static_cast<size_t>(kind)]) + " of " + std::to_string(numbers) + " numbers of type " +
         std::to_string(type) + ", operation " + std::to_string(op) + ", root " + std::to_string(root);
}

Meeting::Meeting(const std::string& name, int ranks, int rank) : ranks_(ranks), rank_(rank) {
  const std::string file = "/" + name;
  const int memory = ::shm_open(file.c_str(), O_CREAT | O_RDWR, 0600);
  const size_t bytes = kHeadBytes + kPlaceBytes * static_cast<size_t>(ranks);
  if (memory < 0 || ::ftruncate(memory, static_cast<off_t>(bytes)) != 0) fail("simulated GPU: memory of NCCL");
  void* shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (shared == MAP_FAILED) fail("simulated GPU: memory of NCCL");
  ::close(memory);
  shared_ = static_cast<Shared*>(shared);  // zeros, from whichever rank is first
  place(rank).process = ::getpid();
  (void)wait();
  if (rank == 0) ::shm_unlink(file.c_str());
}

char* Meeting::slot(int rank) const {
  return reinterpret_cast<char*>(&place(rank)) + kHeadBytes;
}

Meeting::Place& Meeting::place(int rank) const {
  char* first = reinterpret_cast<char*>(shared_) + kHeadBytes;
  return *reinterpret_cast<Place*>(first + kPlaceBytes * static_cast<size_t>(rank));
}

void Meeting::abort() {
  aborted_ = true;
  leave();
}

void Meeting::leave() {
  place(rank_).has_left = true;
}

bool Meeting::has_lost_a_rank() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!place(rank).has_left && ::kill(place(rank).process, 0) != 0) return true;
  }
  return false;
}

bool Meeting::wait() {
  const uint32_t round = shared_->round;
  if (++shared_->arrived == static_cast<uint32_t>(ranks_)) {
    shared_->arrived = 0;
    ++shared_->round;
    ::syscall(SYS_futex, &shared_->round, FUTEX_WAKE, ranks_, nullptr, nullptr, 0);
    return true;
  }
  const timespec look_again = {0, 10'000'000};
  while (shared_->round == round) {
    if (aborted_) return false;
    ::syscall(SYS_futex, &shared_->round, FUTEX_WAIT, round, &look_again, nullptr, 0);
  }
  return true;
}

bool Meeting::agree(const CollectiveCall& own) {
  if (aborted_) return false;  // others may still read what this rank has shown
  place(rank_).call = own;
  if (!wait()) return false;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (place(rank).call == own) continue;
    std::fprintf(stderr, "simulated GPU: NCCL: rank %d calls %s, rank %d calls %s\n", rank_, own.text().c_str(), rank,
                 place(rank).call.text().c_str());
    std::abort();
  }
  return wait();  // all have compared
}

}  // namespace simulated
