// Files are written whole or not at all: on a full disk, over an old file, by two threads, and when killed.
#include "levin/core/files.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "levin/core/error.h"
#include "support/error_text.h"
#include "support/own_mounts.h"
#include "support/temporary_folder.h"

namespace levin::files_test {
namespace {

using test::enter_own_mounts;
using test::error_of;
using test::expect_parts;
using test::TemporaryFolder;
using Names = std::vector<std::string>;

// Read without the code under test.
std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// While it lives, no file of this process may grow beyond `bytes`: a write stops short there, then fails with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(WriteFileDurably, WritesThePartsOneAfterAnother) {
  const TemporaryFolder folder;
  const std::string first = "ab", second, third(100'000, 'z');
  const std::array parts{std::as_bytes(std::span(first)), std::as_bytes(std::span(second)),
                         std::as_bytes(std::span(third))};
  write_file_durably(folder / "a", parts);
  EXPECT_EQ(content_of(folder / "a"), first + third);
}

TEST(WriteFileDurably, WritesEmptyAndBinaryContent) {
  const TemporaryFolder folder;
  write_file_durably(folder / "empty", "");
  EXPECT_EQ(std::filesystem::file_size(folder / "empty"), 0U);
  const std::string binary("\0\xff\n\r\0", 5);
  write_file_durably(folder / "binary", binary);
  EXPECT_EQ(content_of(folder / "binary"), binary);
}

TEST(WriteFileDurably, ReplacesTheOldContentAndLeavesNothingElse) {
  const TemporaryFolder folder;
  write_file_durably(folder / "a", "a long first content");
  write_file_durably(folder / "a", "short");
  EXPECT_EQ(content_of(folder / "a"), "short");
  EXPECT_EQ(folder.names(), Names{"a"});
}

TEST(WriteFileDurably, TakesAPathWithoutAFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_file_durably("bare", "x");
  std::filesystem::current_path(before);
  EXPECT_EQ(content_of(folder / "bare"), "x");
}

TEST(WriteFileDurably, KeepsTheOldFileWhenTheNewOneCannotBeFinished) {
  const TemporaryFolder folder;
  write_file_durably(folder / "a", "old");
  std::string said;
  {
    const FileSizeLimit limit(4096);
    said = error_of([&] { write_file_durably(folder / "a", std::string(10'000, 'n')); });
  }
  expect_parts(said, {folder / "a", "10000 bytes", "File too large"});
  EXPECT_EQ(content_of(folder / "a"), "old");
  EXPECT_EQ(folder.names(), Names{"a"});
}

// In a child: a file system of 64 KiB, seen by nobody else. 0: as promised, 1: not, 77: this machine allows no mount.
int write_to_a_full_disk(const std::string& where) {
  if (!enter_own_mounts()) return 77;
  if (::mount("levin-test", where.c_str(), "tmpfs", 0, "size=64k") != 0) return 77;
  write_file_durably(where + "/a", "old");
  const std::string said = error_of([&] { write_file_durably(where + "/a", std::string(1 << 20, 'n')); });
  const auto files = std::distance(std::filesystem::directory_iterator(where), std::filesystem::directory_iterator());
  const bool as_promised = said.find("No space left on device") != std::string::npos &&
                           said.find("1048576 bytes") != std::string::npos && content_of(where + "/a") == "old" &&
                           files == 1;
  if (!as_promised) std::fprintf(stderr, "said: %s; %ld files\n", said.c_str(), static_cast<long>(files));
  return as_promised ? 0 : 1;
}

TEST(WriteFileDurably, SaysThatTheDiskIsFullAndKeepsTheOldFile) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(write_to_a_full_disk(folder.path()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this machine allows no mount";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(WriteFileDurably, SaysWhyAFolderCannotBeWritten) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "x");
  expect_parts(error_of([&] { write_file_durably(folder / "file/a", "x"); }),
               {"(creating a file in its folder)", folder / "file/a", "Not a directory"});
  expect_parts(error_of([&] { write_file_durably(folder / "none/a", "x"); }),
               {"(creating a file in its folder)", folder / "none/a", "No such file or directory"});
}

TEST(WriteFileDurably, DoesNotReplaceAFolder) {
  const TemporaryFolder folder;
  make_folder(folder / "a");
  write_file_durably(folder / "a/inside", "x");
  expect_parts(error_of([&] { write_file_durably(folder / "a", "x"); }),
               {"(renaming it from a temporary name)", folder / "a", "Is a directory"});
  EXPECT_EQ(folder.names(), Names{"a"});
  EXPECT_EQ(content_of(folder / "a/inside"), "x");
}

TEST(WriteFileDurably, LetsThreadsWriteToOnePath) {
  const TemporaryFolder folder;
  std::atomic<int> failures = 0;
  std::vector<std::thread> writers;
  for (char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&, letter] {
      for (int round = 0; round < 5; ++round) {
        if (error_of([&] { write_file_durably(folder / "x", std::string(50'000, letter)); }) != "") ++failures;
      }
    });
  }
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  const std::string content = content_of(folder / "x");
  ASSERT_EQ(content.size(), 50'000U);
  EXPECT_EQ(content, std::string(50'000, content[0]));
  EXPECT_EQ(folder.names(), Names{"x"});
}

TEST(WriteFileDurably, LeavesAWholeFileWhenKilled) {
  const TemporaryFolder folder;
  const std::string one(300'000, '1'), two(700'000, '2');
  write_file_durably(folder / "x", one);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) {
      write_file_durably(folder / "x", two);
      write_file_durably(folder / "x", one);
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
  const std::string content = content_of(folder / "x");
  EXPECT_TRUE(content == one || content == two) << content.size() << " bytes";
}

TEST(ReadFile, GivesTheWholeFile) {
  const TemporaryFolder folder;
  std::string content(200'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  std::ofstream(folder / "a", std::ios::binary) << content;
  EXPECT_EQ(read_file(folder / "a"), content);
  EXPECT_EQ(read_file(folder / "a", content.size()), content);
}

TEST(ReadFile, ReadsFilesWhoseSizeIsNotKnownBefore) {
  EXPECT_NE(read_file("/proc/self/status").find("Pid:"), std::string::npos);
}

TEST(ReadFile, StopsAtTheLimit) {
  const TemporaryFolder folder;
  write_file_durably(folder / "a", "12345");
  expect_parts(error_of([&] { (void)read_file(folder / "a", 4); }), {folder / "a", "more than 4 bytes"});
  // A device without end does not fill the memory either.
  expect_parts(error_of([&] { (void)read_file("/dev/zero", 1 << 20); }), {"/dev/zero", "more than 1048576 bytes"});
}

TEST(ReadFile, SaysWhyItCannot) {
  const TemporaryFolder folder;
  expect_parts(error_of([&] { (void)read_file(folder / "none"); }), {folder / "none", "No such file or directory"});
  expect_parts(error_of([&] { (void)read_file(folder.path()); }), {folder.path(), "Is a directory"});
}

TEST(MakeFolder, MakesParentsAndTakesOneThatIsThere) {
  const TemporaryFolder folder;
  make_folder(folder / "a/b/c");
  make_folder(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
}

TEST(MakeFolder, SaysWhyItCannot) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "x");
  expect_parts(error_of([&] { make_folder(folder / "file/a"); }), {folder / "file/a", "Not a directory"});
  expect_parts(error_of([&] { make_folder(folder / "file"); }), {folder / "file", "Not a directory"});
}

}  // namespace
}  // namespace levin::files_test
