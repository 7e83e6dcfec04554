// The faults themselves: they hit only the named call, in a forked body and in a separate program.
#include "support/io_faults.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "support/sanitized.h"
#include "support/temporary_folder.h"

namespace levin::test {
namespace {

using End = IoOutcome::End;

void require(bool holds) {
  if (!holds) throw std::runtime_error(std::strerror(errno));
}

std::vector<std::string> names_of(const IoOutcome& outcome) {
  std::vector<std::string> names;
  for (const auto& call : outcome.calls) names.push_back(call.name);
  return names;
}

// open, write, fsync, close, and as many calls elsewhere.
void write_two_files(const std::string& path) {
  for (const std::string& each : {std::string("/dev/null"), path}) {
    const int fd = ::open(each.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    require(fd >= 0);
    require(::write(fd, "12345678", 8) == 8);
    require(each == "/dev/null" || ::fsync(fd) == 0);
    require(::close(fd) == 0);
  }
}

TEST(IoFaults, CountsTheCallsOnItsFolderAlone) {
  const TemporaryFolder folder;
  const IoOutcome outcome = IoFaults(folder.path()).run({}, [&] { write_two_files(folder / "a"); });
  EXPECT_EQ(outcome.end, End::done) << outcome.error;
  EXPECT_FALSE(outcome.injected);
  EXPECT_EQ(names_of(outcome), (std::vector<std::string>{"open", "write", "fsync", "close"}));
  for (const auto& call : outcome.calls) EXPECT_EQ(call.path, folder / "a");
  const IoOutcome none = IoFaults(folder / "b").run({}, [&] { write_two_files(folder / "bc"); });
  EXPECT_TRUE(none.calls.empty()) << "a folder is not a prefix of a name";
}

TEST(IoFaults, FailsTheCallThatWasNamed) {
  const TemporaryFolder folder;
  for (int call = 1; call <= 5; ++call) {
    const IoOutcome outcome =
        IoFaults(folder.path()).run({.call = call, .fault = IoFault::quota}, [&] { write_two_files(folder / "a"); });
    EXPECT_EQ(outcome.injected, call <= 4);
    EXPECT_EQ(outcome.end, call <= 4 ? End::threw : End::done);
    EXPECT_EQ(outcome.error, call <= 4 ? "Disk quota exceeded" : "");
    EXPECT_EQ(outcome.calls.size(), static_cast<size_t>(std::min(call, 4)));
  }
}

TEST(IoFaults, KillsBeforeACallOrInTheMiddleOfIt) {
  const TemporaryFolder folder;
  const auto size_after = [&](IoFault fault) {
    const IoOutcome outcome =
        IoFaults(folder.path()).run({.call = 2, .fault = fault}, [&] { write_two_files(folder / "a"); });
    EXPECT_EQ(outcome.end, End::killed);
    return std::filesystem::file_size(folder / "a");
  };
  EXPECT_EQ(size_after(IoFault::kill), 0U);
  EXPECT_EQ(size_after(IoFault::kill_midway), 4U);
}

TEST(IoFaults, TellsACrashFromAPlannedKill) {
  const TemporaryFolder folder;
  const IoOutcome outcome = IoFaults(folder.path()).run({.call = 1, .fault = IoFault::kill}, [] { ::raise(SIGKILL); });
  EXPECT_EQ(outcome.end, End::crashed);
}

TEST(IoFaults, ReachesOtherPrograms) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer wants to be loaded first";
  const TemporaryFolder folder;
  const IoFaults faults(folder.path());
  const std::vector<std::string> dd{"/bin/dd", "if=/dev/zero", "of=" + (folder / "a"), "bs=1000", "count=3"};
  const IoOutcome clean = faults.run_program({}, dd);
  EXPECT_EQ(clean.end, End::done) << clean.error;
  EXPECT_EQ(std::filesystem::file_size(folder / "a"), 3000U);
  const auto names = names_of(clean);
  const auto first = std::find(names.begin(), names.end(), "write");
  ASSERT_NE(first, names.end());
  const int second_write = static_cast<int>(first - names.begin()) + 2;
  const IoOutcome full = faults.run_program({.call = second_write, .fault = IoFault::no_space}, dd);
  EXPECT_EQ(full.end, End::threw);
  EXPECT_EQ(std::filesystem::file_size(folder / "a"), 1000U);
  EXPECT_EQ(faults.run_program({.call = second_write, .fault = IoFault::kill}, dd).end, End::killed);
}

}  // namespace
}  // namespace levin::test
