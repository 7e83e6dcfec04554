// A save over an older checkpoint whose N-th I/O call fails, for every N: afterwards the path holds the older state or
// the new one, complete, regardless of what failed. The faults are real (support/io_faults.h); so are the full and the
// read-only file system.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "support/error_text.h"
#include "support/io_faults.h"
#include "support/own_mounts.h"
#include "support/temporary_folder.h"

namespace levin::checkpoint_faults_test {
namespace {

using test::enter_own_mounts;
using test::error_of;
using test::has;
using test::IoCall;
using test::IoFault;
using test::IoFaults;
using test::IoOutcome;
using test::TemporaryFolder;
using Names = std::vector<std::string>;

State state_of_epoch(int64_t epoch, int64_t numbers = 5000) {
  State state;
  state.set("epoch", epoch);
  state.tensors["model.weight"] = at::full({numbers}, static_cast<double>(epoch), at::TensorOptions(at::kFloat));
  state.tensors["model.ids"] = at::arange(7, at::TensorOptions(at::kLong));
  return state;
}

bool same(const State& a, const State& b) {
  return a.values.same_as(b.values) && a.tensors.size() == b.tensors.size() &&
         std::all_of(a.tensors.begin(), a.tensors.end(), [&](const auto& item) {
           const auto other = b.tensors.find(item.first);
           return other != b.tensors.end() && other->second.equal(item.second);
         });
}

const char* cause_of(IoFault fault) {
  switch (fault) {
    case IoFault::no_space: return "No space left on device";
    case IoFault::io_error: return "Input/output error";
    case IoFault::quota: return "Disk quota exceeded";
    case IoFault::interrupted: return "Interrupted system call";
    default: return "";
  }
}

// A folder with, or without, an older checkpoint, and saves of a newer one under faults.
class Saves {
 public:
  explicit Saves(bool with_older) : with_older_(with_older) { restore(); }

  IoOutcome save(const test::IoPlan& plan) const {
    return IoFaults(folder_.path()).run(plan, [&] { write_checkpoint(path_, newer_); });
  }

  // What must hold after a save, however it ended.
  void check(const IoOutcome& outcome, IoFault fault) const {
    ASSERT_NE(outcome.end, IoOutcome::End::crashed) << outcome.error;
    const bool there = std::filesystem::exists(path_);
    EXPECT_TRUE(there || (!with_older_ && outcome.end != IoOutcome::End::done)) << "neither the older nor the newer";
    bool is_newer = false;
    if (there) {
      const State found = read_checkpoint(path_);  // throws if it is not whole
      is_newer = same(found, newer_);
      EXPECT_TRUE(is_newer || (with_older_ && same(found, older_))) << "neither the older nor the newer";
    }
    EXPECT_TRUE(is_newer || outcome.end != IoOutcome::End::done) << "reported as saved";
    if (outcome.end != IoOutcome::End::killed) {
      EXPECT_EQ(folder_.names(), there ? Names{"a.ckpt"} : Names{});
    }
    if (outcome.end == IoOutcome::End::threw) check_message(outcome.error, cause_of(fault), is_newer);
  }

  void restore() const {
    for (const auto& name : folder_.names()) std::filesystem::remove(folder_ / name);
    if (with_older_) write_checkpoint(path_, older_);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void check_message(const std::string& message, const std::string& cause, bool is_newer) const {
    const std::string bytes = std::to_string(size_) + " bytes";
    for (const auto& part : {path_, bytes, cause})
      EXPECT_TRUE(has(message, part)) << "no \"" << part << "\" in: " << message;
    EXPECT_EQ(has(message, "The previous file is intact"), with_older_ && !is_newer) << message;
  }

  static uint64_t size_of(const State& state) {
    const TemporaryFolder folder;
    write_checkpoint(folder / "size", state);
    return std::filesystem::file_size(folder / "size");
  }

  bool with_older_;
  State older_ = state_of_epoch(1), newer_ = state_of_epoch(2);
  uint64_t size_ = size_of(newer_);
  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.ckpt";
};

// Every call of the save fails once; returns how many there were.
int fail_each_call(const Saves& saves, IoFault fault, bool lasting = false) {
  for (int call = 1; call < 1000; ++call) {
    SCOPED_TRACE("call " + std::to_string(call) + (lasting ? " and all after it" : ""));
    const IoOutcome outcome = saves.save({.call = call, .fault = fault, .lasting = lasting});
    saves.check(outcome, fault);
    saves.restore();
    if (!outcome.injected) {
      EXPECT_EQ(outcome.end, IoOutcome::End::done) << outcome.error;
      return call - 1;
    }
    const bool is_kill = fault == IoFault::kill || fault == IoFault::kill_midway;
    EXPECT_TRUE(!is_kill || outcome.end == IoOutcome::End::killed);
  }
  ADD_FAILURE() << "a save makes a thousand I/O calls";
  return 0;
}

size_t place_of(const std::vector<IoCall>& calls, const std::string& name, const std::string& path_end) {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const IoCall& call) {
    return call.name == name && call.path.ends_with(path_end);
  });
  return static_cast<size_t>(found - calls.begin());
}

// The faults below are worth nothing if the calls are not seen; and this order is what a power cut needs.
TEST(CheckpointFaults, ASaveSyncsTheDataBeforeItRenamesAndTheFolderAfter) {
  const Saves saves(true);
  const IoOutcome outcome = saves.save({});
  ASSERT_EQ(outcome.end, IoOutcome::End::done) << outcome.error;
  const auto& calls = outcome.calls;
  const std::string folder = std::filesystem::path(saves.path()).parent_path();
  ASSERT_FALSE(calls.empty());
  const std::string temporary = calls[0].path;
  EXPECT_EQ(calls[0].name, "open");
  EXPECT_TRUE(temporary.starts_with(folder + "/") && temporary != saves.path()) << temporary;
  const size_t renamed = place_of(calls, "rename", saves.path());
  ASSERT_LT(renamed, calls.size());
  EXPECT_LT(place_of(calls, "write", temporary), place_of(calls, "fsync", temporary));
  EXPECT_LT(place_of(calls, "fsync", temporary), renamed);
  EXPECT_EQ(place_of(calls, "write", saves.path()), calls.size()) << "wrote to the file itself";
  EXPECT_GT(place_of(calls, "fsync", folder), renamed);
  EXPECT_LT(place_of(calls, "fsync", folder), calls.size());
  for (size_t i = place_of(calls, "fsync", temporary); i < calls.size(); ++i) {
    EXPECT_NE(calls[i].name, "write") << "written after the sync";
  }
}

TEST(CheckpointFaults, AnErrorAtAnyCallLeavesTheOlderOrTheNewer) {
  for (const bool with_older : {true, false}) {
    const Saves saves(with_older);
    for (const IoFault fault : {IoFault::no_space, IoFault::io_error, IoFault::quota}) {
      SCOPED_TRACE(std::string(cause_of(fault)) + (with_older ? " over an older file" : " in an empty folder"));
      EXPECT_GE(fail_each_call(saves, fault), 7);  // open, write, fsync, close, rename, open and fsync of the folder
    }
  }
}

TEST(CheckpointFaults, ADiskThatStaysFullLeavesTheOlderOrTheNewer) {
  for (const bool with_older : {true, false}) {
    const Saves saves(with_older);
    for (const IoFault fault : {IoFault::no_space, IoFault::io_error}) {
      SCOPED_TRACE(cause_of(fault));
      EXPECT_GE(fail_each_call(saves, fault, /*lasting=*/true), 7);
    }
  }
}

TEST(CheckpointFaults, ShortWritesAndInterruptionsAreNotFaults) {
  const Saves saves(true);
  for (const IoFault fault : {IoFault::short_write, IoFault::interrupted}) {
    for (int call = 1;; ++call) {
      const IoOutcome outcome = saves.save({.call = call, .fault = fault});
      EXPECT_EQ(outcome.end, IoOutcome::End::done) << "call " << call << ": " << outcome.error;
      saves.check(outcome, fault);
      saves.restore();
      if (!outcome.injected) break;
    }
  }
  const IoOutcome outcome = saves.save({.call = 1, .fault = IoFault::short_write, .lasting = true});
  EXPECT_EQ(outcome.end, IoOutcome::End::done) << outcome.error;
  EXPECT_GT(outcome.calls.size(), 20U) << "no write was cut short";
  saves.check(outcome, IoFault::short_write);
}

TEST(CheckpointFaults, AKillAtAnyCallLeavesTheOlderOrTheNewer) {
  for (const bool with_older : {true, false}) {
    const Saves saves(with_older);
    for (const IoFault fault : {IoFault::kill, IoFault::kill_midway}) {
      SCOPED_TRACE(fault == IoFault::kill ? "killed before a call" : "killed within a call");
      EXPECT_GE(fail_each_call(saves, fault), 7);
    }
  }
}

TEST(CheckpointFaults, ASaveAfterAKilledOneWorks) {
  const Saves saves(true);
  ASSERT_EQ(saves.save({.call = 3, .fault = IoFault::kill_midway}).end, IoOutcome::End::killed);
  const IoOutcome next = saves.save({});
  EXPECT_EQ(next.end, IoOutcome::End::done) << next.error;
  EXPECT_TRUE(same(read_checkpoint(saves.path()), state_of_epoch(2)));
}

// The older checkpoint is one file. Next to it is an even older one, which a killed save has set aside.
TEST(CheckpointFaults, AShardedSaveOverAFileLeavesTheOlderOrTheNewer) {
  State sharded = state_of_epoch(3, /*numbers=*/100);
  sharded.set("parts", ConfigNode::map());
  for (const IoFault fault : {IoFault::no_space, IoFault::io_error, IoFault::kill, IoFault::kill_midway}) {
    for (const bool lasting : {false, true}) {
      for (int call = 1;; ++call) {
        SCOPED_TRACE(std::string(cause_of(fault)) + " at call " + std::to_string(call));
        const TemporaryFolder folder;
        const std::string path = folder / "last.ckpt", aside = folder / "last-replaced.ckpt";
        write_checkpoint(aside, state_of_epoch(1));
        write_checkpoint(path, state_of_epoch(2));
        const IoOutcome outcome = IoFaults(folder.path()).run({.call = call, .fault = fault, .lasting = lasting}, [&] {
          write_sharded_checkpoint(path, sharded, {0, 1, "new"});
        });
        ASSERT_NE(outcome.end, IoOutcome::End::crashed) << outcome.error;
        const bool is_there = std::filesystem::is_regular_file(path) || is_sharded_checkpoint(path);
        const auto epoch = load_checkpoint(is_there ? path : aside).get<int64_t>("epoch");
        EXPECT_EQ(epoch, outcome.end == IoOutcome::End::done ? 3 : std::max<int64_t>(epoch, 2));
        if (outcome.injected) continue;
        EXPECT_EQ(folder.names(), Names{"last.ckpt"});
        EXPECT_GE(call, 10);
        break;
      }
    }
  }
}

TEST(CheckpointFaults, AReadThatFailsNamesTheFileAndTheByte) {
  const Saves saves(true);
  const IoFaults faults(std::filesystem::path(saves.path()).parent_path());
  const auto read = [&] { (void)read_checkpoint(saves.path()); };
  int tried = 0;
  for (int call = 1;; ++call) {
    const IoOutcome outcome = faults.run({.call = call, .fault = IoFault::io_error}, read);
    if (!outcome.injected) break;
    const IoCall& failed = outcome.calls[static_cast<size_t>(call) - 1];
    if (failed.name == "close") continue;
    EXPECT_EQ(outcome.end, IoOutcome::End::threw) << failed.name;
    EXPECT_TRUE(has(outcome.error, saves.path()) && has(outcome.error, "Input/output error")) << outcome.error;
    ++tried;
    if (failed.name == "open") continue;
    EXPECT_EQ(faults.run({.call = call, .fault = IoFault::interrupted}, read).end, IoOutcome::End::done);
    EXPECT_EQ(faults.run({.call = call, .fault = IoFault::short_write}, read).end, IoOutcome::End::done);
  }
  EXPECT_GE(tried, 5);  // open, the length, the header, two tensors
}

// ---- the real thing

// Runs `work` in a child with mounts of its own; false, and a line on stderr, where this machine allows none.
bool in_own_mounts(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!enter_own_mounts()) ::_exit(77);
    try {
      ::_exit(work() ? 0 : 77);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return false;
  EXPECT_EQ(status, 0) << "the child says why above";
  return true;
}

// In the child: reports on stderr and ends it.
void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  ::_exit(1);
}

TEST(CheckpointFaults, AFileSystemThatIsFullKeepsTheOlder) {
  const TemporaryFolder folder;
  const bool could = in_own_mounts([&] {
    if (::mount("levin-test", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) return false;
    write_checkpoint(folder / "a.ckpt", state_of_epoch(1));
    const std::string message =
        error_of<CheckpointError>([&] { write_checkpoint(folder / "a.ckpt", state_of_epoch(2, /*numbers=*/100'000)); });
    require(has(message, "No space left on device") && has(message, folder / "a.ckpt") &&
                has(message, "previous file is intact"),
            "message: " + message);
    require(same(read_checkpoint(folder / "a.ckpt"), state_of_epoch(1)), "the older state is gone");
    require(folder.names() == Names{"a.ckpt"}, "files were left in the folder");
    write_checkpoint(folder / "a.ckpt", state_of_epoch(3));
    require(same(read_checkpoint(folder / "a.ckpt"), state_of_epoch(3)), "a save that fits failed");
    return true;
  });
  if (!could) GTEST_SKIP() << "this machine allows no mount";
}

TEST(CheckpointFaults, AReadOnlyFileSystemIsReportedAndItsCheckpointsCanBeRead) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "a.ckpt", state_of_epoch(1));
  const bool could = in_own_mounts([&] {
    const char* path = folder.path().c_str();
    if (::mount(path, path, nullptr, MS_BIND, nullptr) != 0) return false;
    if (::mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) return false;
    const std::string message =
        error_of<CheckpointError>([&] { write_checkpoint(folder / "a.ckpt", state_of_epoch(2)); });
    require(has(message, "Read-only file system") && has(message, folder / "a.ckpt") && has(message, "bytes"),
            "message: " + message);
    require(same(read_checkpoint(folder / "a.ckpt"), state_of_epoch(1)), "the older state cannot be read");
    return true;
  });
  if (!could) GTEST_SKIP() << "this machine allows no mount";
}

}  // namespace
}  // namespace levin::checkpoint_faults_test
