// Ranks that end, freeze or come late while others wait for them in shared memory, and who can see that memory.
#include <ATen/ATen.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "levin/core/options/error.h"
#include "levin/strategies/process/rank_groups.h"
#include "levin/strategies/process/shm_backend.h"
#include "shm_truth.h"

namespace levin::shm_faults_test {
namespace {

namespace fs = std::filesystem;
using test::check;
using test::Group;
using test::on_ranks;
using test::part_of;
using test::reduced;
using test::shm;
using test::Tensors;
using Milliseconds = std::chrono::milliseconds;

constexpr int64_t kLargeMessage = 16 << 20;  // elements: many rounds

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

// Not folders: another program's folder for temporary files may be there.
std::set<std::string> names_in_dev_shm() {
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator("/dev/shm")) {
    std::error_code gone;
    if (file.is_regular_file(gone)) names.insert(file.path().filename().string());
  }
  return names;
}

// This process's open files whose name has `part`.
std::vector<struct stat> open_files(const std::string& part) {
  std::vector<struct stat> found;
  for (const auto& file : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the directory's own descriptor
    struct stat status = {};
    if (!has(fs::read_symlink(file.path(), gone).string(), part)) continue;
    if (::stat(file.path().c_str(), &status) == 0) found.push_back(status);
  }
  return found;
}

// Processes that have the ranks' memory with this inode in theirs.
int64_t holders(uint64_t inode) {
  int64_t count = 0;
  for (const auto& process : fs::directory_iterator("/proc")) {
    if (process.is_symlink()) continue;  // self
    std::ifstream maps(process.path() / "maps");
    bool holds = false;
    for (std::string line; std::getline(maps, line);) {
      holds = holds || (has(line, " " + std::to_string(inode) + " ") && has(line, "memfd:levin ranks"));
    }
    count += holds;
  }
  return count;
}

std::string lost_rank(ProcessRanks& ranks, int signal_number) {
  const Group group = shm(ranks);
  Tensors tensors = {at::ones({10})};
  wait_for(*group->allreduce(tensors), *group, "a reduction");
  if (group->getRank() == 2) ::raise(signal_number);
  const auto start = std::chrono::steady_clock::now();
  try {
    wait_for(*group->allreduce(tensors), *group, "a reduction");
  } catch (const RankError& error) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const std::string text = error.what();
    try {
      group->allreduce(tensors)->wait();
    } catch (const RankError& again) {
      if (text.find(again.what()) == std::string::npos) return again.what();
    }
    return (took.count() < 20 ? "soon: " : "late: ") + text;
  }
  return "no error";
}

TEST(ShmFaults, NamesARankThatWasKilledAtOnce) {
  const auto texts = on_ranks(3, [](ProcessRanks& ranks) { return lost_rank(ranks, SIGKILL); });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_PRED2(matches, texts[rank],
                 ("soon: rank " + std::to_string(rank) +
                  " of 3: a reduction failed: rank 2 \\(process [0-9]+\\) has "
                  "ended. Another rank ended or hangs"));
  }
}

TEST(ShmFaults, NamesARankThatHangsOnceTheTimeoutIsOver) {
  const auto texts = on_ranks(3,
                              [](ProcessRanks& ranks) {
                                (void)shm(ranks);
                                ranks.set_timeout(std::chrono::milliseconds(1500));
                                return lost_rank(ranks, SIGSTOP);
                              },
                              std::chrono::seconds(60), {2});
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_PRED2(matches, texts[rank],
                 ("soon: rank " + std::to_string(rank) +
                  " of 3: a reduction failed: Timed out waiting 1500ms for rank 2 "
                  "\\(process [0-9]+\\)"));
  }
}

TEST(ShmFaults, NamesARankThatCallsADifferentCollective) {
  const auto texts = on_ranks(2, [](ProcessRanks& ranks) {
    const Group group = shm(ranks);
    Tensors tensors = {at::ones({ranks.world().rank == 0 ? 4 : 5})};
    group->allreduce(tensors)->wait();
    return std::string("no error");
  });
  EXPECT_PRED2(has, texts[0], ("calls another collective, or with tensors of other sizes or types, than rank 0"));
  EXPECT_PRED2(has, texts[1], ("calls another collective, or with tensors of other sizes or types, than rank 1"));
}

// Starts a reduction, and ends this process once the first sums have arrived and others have not. Returns the reduction
// if it was faster.
c10::intrusive_ptr<c10d::Work> reduce_and_die(c10d::ProcessGroup& group, Tensors& tensors) {
  const volatile float* const first = tensors[0].const_data_ptr<float>();
  const float before = *first;
  auto work = group.allreduce(tensors);
  while (*first == before && !work->isCompleted()) std::this_thread::yield();
  if (!work->isCompleted()) ::raise(SIGKILL);
  return work;
}

TEST(ShmFaults, NamesARankThatWasKilledAmidALargeMessage) {
  const auto texts = on_ranks(3, [](ProcessRanks& ranks) {
    const Group group = shm(ranks);
    Tensors tensors = {at::ones({kLargeMessage})};
    auto start = std::chrono::steady_clock::now();
    std::string text;
    while (text.empty()) {
      start = std::chrono::steady_clock::now();
      try {
        const auto work = group->getRank() == 2 ? reduce_and_die(*group, tensors) : group->allreduce(tensors);
        wait_for(*work, *group, "a reduction");
      } catch (const RankError& error) {
        text = error.what();
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return (took.count() < 20 ? "soon: " : "late: ") + text;
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_PRED2(matches, texts[rank], ("soon: .* rank 2 \\(process [0-9]+\\) has ended"));
  }
}

TEST(ShmFaults, RanksThatAreAllKilledAmidAMessageLeaveNoMemoryBehind) {
  const auto before = names_in_dev_shm();
  auto* const inode = static_cast<uint64_t*>(
      ::mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto texts = on_ranks(2, [&](ProcessRanks& ranks) {
    const Group group = shm(ranks);
    if (group->getRank() == 0) *inode = open_files("memfd:levin ranks").at(0).st_ino;
    ranks.barrier();
    if (holders(*inode) != 2) return std::to_string(holders(*inode)) + " processes share the memory";
    ranks.barrier();
    Tensors tensors = {at::ones({kLargeMessage})};
    while (!reduce_and_die(*group, tensors)->exception()) {
    }
    ::raise(SIGKILL);  // the other rank was cut before
    return std::string();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
  EXPECT_NE(*inode, 0U);
  EXPECT_EQ(holders(*inode), 0);
  for (const std::string& name : names_in_dev_shm()) {
    EXPECT_TRUE(before.count(name) > 0 || !has(name, "levin")) << name;
  }
  ::munmap(inode, sizeof(uint64_t));
}

TEST(ShmFaults, TheMemoryHasNoNameAndIsPrivate) {
  const auto texts = on_ranks(2, [](ProcessRanks& ranks) {
    const Group group = shm(ranks);
    Tensors tensors = {at::ones({10})};
    group->allreduce(tensors)->wait();
    std::ostringstream text;
    for (const auto& file : open_files("memfd:levin ranks")) {
      text << std::oct << (file.st_mode & 0777) << " links " << file.st_nlink << "\n";
    }
    for (const std::string& name : names_in_dev_shm()) text << (has(name, "levin") ? name : "");
    ranks.barrier();  // the other one looks too
    return text.str();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "600 links 0\n");
}

TEST(ShmFaults, AnotherUserCannotOpenTheMemory) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kNobody = 65534;
  const ShmSegment own(2, 1 << 16);
  const std::string offer = own.offer();
  std::array<int, 2> ends = {};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    std::string text = "opened";
    try {
      if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) throw std::runtime_error("setuid failed");
      const ShmSegment theirs(offer, 1, 2);
    } catch (const std::exception& error) {
      text = error.what();
    }
    ::_exit(::write(ends[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::array<char, 200> text = {};
  EXPECT_GT(::read(ends[0], text.data(), text.size() - 1), 0);
  ::close(ends[0]);
  ::waitpid(other, nullptr, 0);
  // Where /proc hides the processes of other users (hidepid), there is nothing to open.
  const std::string found = text.data();
  EXPECT_TRUE(found == "opening rank 0's memory: Permission denied" ||
              found == "opening rank 0's memory: No such file or directory")
      << found;
}

// Rank 1 begins once rank 0 has seen that its calls do not wait.
TEST(ShmFaults, CallsReturnBeforeTheOtherRankComesAndAWaitMayEndSooner) {
  const auto texts = on_ranks(2, [](ProcessRanks& ranks) {
    const Group group = shm(ranks);
    Tensors small = {part_of(group->getRank(), 10, at::kFloat)};
    Tensors large = {part_of(group->getRank(), kLargeMessage, at::kFloat)};
    if (group->getRank() == 1) ranks.barrier();
    const auto first = group->allreduce(small);
    const auto second = group->allreduce(large);
    std::string text;
    if (group->getRank() == 0) {
      if (first->isCompleted() || second->isCompleted()) text += "completed without rank 1\n";
      try {
        second->wait(Milliseconds(100));
        text += "no error\n";
      } catch (const std::exception& error) {
        if (!has(error.what(), "timed out")) text += error.what();
      }
      ranks.barrier();
    }
    second->wait();
    first->wait();
    check(text, small[0], reduced(2, 10, at::kFloat, c10d::ReduceOp::SUM), "small");
    check(text, large[0], reduced(2, kLargeMessage, at::kFloat, c10d::ReduceOp::SUM), "large");
    return text;
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST(ShmFaults, ACallsOwnTimeoutNamesTheLateRankInItsWorkAndFuture) {
  const auto texts = on_ranks(2, [](ProcessRanks& ranks) {
    const Group group = shm(ranks);
    std::string text;
    if (group->getRank() == 0) {
      Tensors tensors = {at::ones({kLargeMessage})};
      c10d::AllreduceOptions options;
      options.timeout = Milliseconds(300);
      const auto work = group->allreduce(tensors, options);
      const auto future = work->getFuture();
      future->wait();
      text = future->hasError() ? future->tryRetrieveErrorMessage() + "\n" : "no error\n";
      try {
        work->wait();
      } catch (const RankError& error) {
        text += error.what();
      }
    }
    ranks.barrier();
    return text;
  });
  const std::string late = "Timed out waiting 300ms for rank 1 \\(process [0-9]+\\)";
  EXPECT_PRED2(matches, texts[0], (late + "\n" + late));
}

// Of four ranks, 0 and 2, 1 and 3, and all: each group has its own memory, and half of the ranks begin with another
// one.
TEST(ShmFaults, GroupsOfSomeRanksDoNotMix) {
  const auto wrong = on_ranks(4, [](ProcessRanks& ranks) {
    const int64_t self = ranks.world().rank;
    const auto first = static_cast<size_t>(self % 2);
    const std::vector<std::string> machines = {"even", "odd", "even", "odd"};
    SharedMemory memory = share_memory(self, machines, [&](const std::string& text) { return ranks.gather(text); });
    const auto pair = c10::make_intrusive<ShmBackend>(std::move(memory.segment), std::chrono::seconds(60));
    const Group all = shm(ranks);
    std::string text;
    for (int64_t call = 0; call < 10; ++call) {
      const int64_t size = call % 2 == 0 ? 100 : 300'000;
      Tensors two = {part_of(self, size, at::kFloat, call)};
      Tensors four = {part_of(self, size, at::kFloat, call)};
      c10::intrusive_ptr<c10d::Work> works[2];
      if (first == 0) works[0] = pair->allreduce(two, {});
      works[1] = all->allreduce(four);
      if (first == 1) works[0] = pair->allreduce(two, {});
      for (const auto& work : works) work->wait();
      const auto rank = static_cast<int64_t>(first);
      check(text, two[0], part_of(rank, size, at::kFloat, call) + part_of(rank + 2, size, at::kFloat, call), "pair");
      check(text, four[0], reduced(4, size, at::kFloat, c10d::ReduceOp::SUM, call), "all");
    }
    return text;
  });
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace levin::shm_faults_test
