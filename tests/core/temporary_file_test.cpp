// Names and locks of files that are not finished yet, and what becomes of files whose writer was killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "levin/core/files/files.h"
#include "support/temporary_folder.h"
#include "support/wait_until.h"

namespace levin::temporary_file_test {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::wait_until;
using Names = std::vector<std::string>;

TEST(TemporaryFile, NamesCannotBeForeseen) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(temporary_name("a.ckpt"));
  EXPECT_EQ(names.size(), 1000U);
  const pid_t child = ::fork();  // what one process draws tells nothing of another's
  if (child == 0) ::_exit(names.contains(temporary_name("a.ckpt")) ? 1 : 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const std::string& name : names) EXPECT_TRUE(name.starts_with("a.ckpt.tmp-") && is_temporary_name(name)) << name;
}

TEST(TemporaryFile, KnowsItsNamesAndNoOthers) {
  for (const char* name : {"a.tmp-0123456789abcdef", "a.tmp-1-3", "a.tmp-12345"}) EXPECT_TRUE(is_temporary_name(name));
  for (const char* name : {"a", "a.tmp", "a.tmp-", ".tmp-0123456789abcdef", "a.tmp-0123456789abcdeg",
                           "a.tmp-0123456789abcdef0", "a.tmp-0123456789ABCDEF", "a.tmp-0123456789abcdef.ckpt"}) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
}

TEST(TemporaryFile, IsNeverMadeOfWhatIsThere) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "theirs";
  fs::create_symlink("file", folder / "link");
  fs::create_symlink("nowhere", folder / "dangling");
  for (const char* name : {"file", "link", "dangling"}) {
    EXPECT_FALSE(LockedFile::create(folder / name)) << name;
    EXPECT_EQ(errno, EEXIST) << name;
  }
  EXPECT_EQ(read_file(folder / "file"), "theirs");
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
}

TEST(TemporaryFile, IsLockedAsLongAsItsWriterHasIt) {
  const TemporaryFolder folder;
  {
    const LockedFile file = LockedFile::create(folder / "a.tmp-0123456789abcdef");
    ASSERT_TRUE(file);
    EXPECT_FALSE(LockedFile::take_over(folder / "a.tmp-0123456789abcdef"));
    remove_leftovers(folder.path());
    EXPECT_EQ(folder.names().size(), 1U);
  }
  remove_leftovers(folder.path());
  EXPECT_EQ(folder.names(), Names{});
}

TEST(TemporaryFile, ProgramsThatAreStartedDoNotInheritTheLock) {
  const TemporaryFolder folder;
  pid_t child = -1;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);  // at its end the program has begun
  {
    const LockedFile file = LockedFile::create(folder / "a.tmp-0123456789abcdef");
    child = ::fork();
    if (child == 0) {
      ::execl("/bin/sleep", "sleep", "600", nullptr);
      ::_exit(1);
    }
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  }
  remove_leftovers(folder.path());
  EXPECT_EQ(folder.names(), Names{});
  ::close(ends[0]);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// A child that saves again and again; stopped while a temporary file is there.
TEST(TemporaryFile, WhatALivingProcessWritesStaysAndWhatAKilledOneLeftGoes) {
  const TemporaryFolder folder;
  const auto half_written = [&] {
    const Names names = folder.names();
    return std::find_if(names.begin(), names.end(), is_temporary_name) != names.end();
  };
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string content(20'000'000, 'x');
    while (true) write_file_durably(folder / "a.ckpt", content);
  }
  bool caught = false;
  int status = 0;
  for (int tries = 0; tries < 10'000 && !caught; ++tries) {
    ASSERT_TRUE(wait_until(half_written));
    ::kill(child, SIGSTOP);
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status)) << "the writer ended by itself";
    remove_leftovers(folder.path());
    caught = half_written();
    if (!caught) ::kill(child, SIGCONT);
  }
  EXPECT_TRUE(caught) << "never met a save in the works";
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  remove_leftovers(folder.path());
  EXPECT_FALSE(half_written());
}

// As in containers: the process id in a leftover's name is somebody else's now, and lives.
TEST(TemporaryFile, AProcessIdInANameCountsForNothing) {
  const TemporaryFolder folder;
  std::ofstream(folder / ("a.ckpt.tmp-" + std::to_string(::getpid()) + "-0")) << "half";
  std::ofstream(folder / "a.ckpt.tmp-1-31") << "half";
  fs::create_symlink("a.ckpt", folder / "last.ckpt.tmp-0123456789abcdef");
  fs::create_directory(folder / "b.tmp-0123456789abcdef");
  remove_leftovers(folder.path());
  EXPECT_EQ(folder.names(), Names{"b.tmp-0123456789abcdef"});
}

TEST(TemporaryFile, FilesThatBelongTogetherGoTogetherOrNotAtAll) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a") << "1";
  {
    const LockedFile other = LockedFile::create(folder / "b");
    remove_if_abandoned({folder / "a", folder / "b", folder / "none"});
    EXPECT_EQ(folder.names(), (Names{"a", "b"}));
  }
  remove_if_abandoned({folder / "a", folder / "b", folder / "none"});
  EXPECT_EQ(folder.names(), Names{});
}

}  // namespace
}  // namespace levin::temporary_file_test
