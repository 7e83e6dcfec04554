// Files are written whole or not at all: on a full disk, over an old file, by two threads, and when killed.
#include "levin/core/files/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/own_mounts.h"
#include "support/temporary_folder.h"
#include "support/wait_until.h"

namespace levin::files_test {
namespace {

using test::enter_own_mounts;
using test::error_of;
using test::expect_parts;
using test::TemporaryFolder;
using test::wait_until;
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
  std::string message;
  {
    const FileSizeLimit limit(4096);
    message = error_of([&] { write_file_durably(folder / "a", std::string(10'000, 'n')); });
  }
  expect_parts(message, {folder / "a", "10000 bytes", "File too large"});
  EXPECT_EQ(content_of(folder / "a"), "old");
  EXPECT_EQ(folder.names(), Names{"a"});
}

// In a child: a file system of 64 KiB, seen by nobody else. 0: as promised, 1: not, 77: this machine allows no mount.
int write_to_a_full_disk(const std::string& where) {
  if (!enter_own_mounts()) return 77;
  if (::mount("levin-test", where.c_str(), "tmpfs", 0, "size=64k") != 0) return 77;
  write_file_durably(where + "/a", "old");
  const std::string message = error_of([&] { write_file_durably(where + "/a", std::string(1 << 20, 'n')); });
  const auto files = std::distance(std::filesystem::directory_iterator(where), std::filesystem::directory_iterator());
  const bool as_promised = message.find("No space left on device") != std::string::npos &&
                           message.find("1048576 bytes") != std::string::npos && content_of(where + "/a") == "old" &&
                           files == 1;
  if (!as_promised) std::fprintf(stderr, "message: %s; %ld files\n", message.c_str(), static_cast<long>(files));
  return as_promised ? 0 : 1;
}

TEST(WriteFileDurably, ReportsThatTheDiskIsFullAndKeepsTheOldFile) {
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

TEST(WriteFileDurably, ReportsWhyAFolderCannotBeWritten) {
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

mode_t kind_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

void make_socket(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
}

TEST(WriteFileDurably, ReplacesNoFifoAndNoSocket) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  make_socket(folder / "socket");
  expect_parts(error_of([&] { write_file_durably(folder / "fifo", "x"); }),
               {"cannot write " + folder / "fifo", "it is a FIFO, and only regular files are replaced", "Remove it"});
  expect_parts(error_of([&] { write_file_durably(folder / "socket", "x"); }), {"it is a socket"});
  EXPECT_EQ(kind_of(folder / "fifo"), static_cast<mode_t>(S_IFIFO));
  EXPECT_EQ(kind_of(folder / "socket"), static_cast<mode_t>(S_IFSOCK));
  EXPECT_EQ(folder.names(), (Names{"fifo", "socket"}));
}

TEST(WriteFileDurably, ReplacesALinkAndNotWhatItLeadsTo) {
  const TemporaryFolder folder;
  folder.write("theirs", "theirs");
  std::filesystem::create_symlink("theirs", folder / "link");
  write_file_durably(folder / "link", "ours");
  EXPECT_EQ(content_of(folder / "theirs"), "theirs");
  EXPECT_EQ(kind_of(folder / "link"), static_cast<mode_t>(S_IFREG));
}

TEST(WriteOutput, GivesAFifoTheContentAsAStream) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  const std::string content(300'000, 'x');  // more than a pipe holds
  std::string read;
  std::thread reader([&] { read = content_of(folder / "fifo"); });
  write_output(folder / "fifo", content);
  reader.join();
  EXPECT_EQ(read, content);
  EXPECT_EQ(kind_of(folder / "fifo"), static_cast<mode_t>(S_IFIFO));
}

TEST(WriteOutput, WritesToADeviceAndLeavesIt) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/dev/null", folder / "null");
  write_output(folder / "null", "x");
  EXPECT_EQ(kind_of(folder / "null"), static_cast<mode_t>(S_IFLNK));
  std::filesystem::create_symlink("/dev/full", folder / "full");
  expect_parts(error_of([&] { write_output(folder / "full", "x"); }),
               {"cannot write " + folder / "full", "No space left on device. Free some space on its disk."});
  if (::mknod((folder / "device").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) GTEST_SKIP() << "needs root";
  const int fd = ::open((folder / "device").c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) GTEST_SKIP() << "this file system has no devices";
  ::close(fd);
  write_output(folder / "device", "x");
  EXPECT_EQ(kind_of(folder / "device"), static_cast<mode_t>(S_IFCHR));
}

TEST(WriteOutput, WritesTheFileThatALinkLeadsTo) {
  const TemporaryFolder folder;
  make_folder(folder / "below");
  folder.write("below/file", "old");
  std::filesystem::create_symlink("below/file", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  std::filesystem::create_symlink(folder / "below/new", folder / "dangling");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("first", folder / "second");
  std::filesystem::create_symlink("second", folder / "first");
  expect_parts(error_of([&] { write_output(folder / "first", "x"); }),
               {"cannot write " + folder / "first", "Too many levels of symbolic links"});
  EXPECT_EQ(kind_of(folder / "first"), static_cast<mode_t>(S_IFLNK));
  write_output(folder / "b", "1");
  write_output(folder / "dangling", "2");
  write_output(folder / "plain", "3");
  EXPECT_EQ(content_of(folder / "below/file") + content_of(folder / "below/new") + content_of(folder / "plain"), "123");
  for (const char* name : {"a", "b", "dangling"}) EXPECT_EQ(kind_of(folder / name), static_cast<mode_t>(S_IFLNK));
}

TEST(OpenRegularFile, FollowsNoLinkAndWaitsForNoFifo) {
  const TemporaryFolder folder;
  folder.write("file", "theirs");
  std::filesystem::create_symlink("file", folder / "link");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  make_socket(folder / "socket");
  for (const int flags : {O_RDONLY, O_WRONLY | O_CREAT | O_TRUNC}) {
    const std::string action = flags == O_RDONLY ? "cannot read " : "cannot write ";
    const std::vector<std::pair<std::string, std::string>> kinds{
        {"link", "a symbolic link"}, {"dangling", "a symbolic link"}, {"fifo", "a FIFO"}, {"socket", "a socket"}};
    for (const auto& [name, kind] : kinds) {
      expect_parts(error_of([&, name = name] { (void)open_regular_file(folder / name, flags); }),
                   {action + folder / name + ": it is " + kind + ", not a regular file."});
    }
  }
  EXPECT_EQ(content_of(folder / "file"), "theirs");
  EXPECT_EQ(open_regular_file(folder / "none", O_RDONLY), -1);
  const int fd = open_regular_file(folder / "new", O_WRONLY | O_CREAT);
  EXPECT_GE(fd, 0);
  ::close(fd);
  EXPECT_EQ(folder.names(), (Names{"dangling", "fifo", "file", "link", "new", "socket"}));
}

TEST(JoinedName, StaysInItsFolder) {
  for (const char* name : {"", "a", "a/b", "..a", "a..", "./a", "a//b"}) {
    EXPECT_EQ(error_of([&] { check_joined_name("X.version", name, "save_dir"); }), "") << name;
  }
  for (const char* name : {"..", "../a", "a/../../b", "a/..", "/a", "//a"}) {
    expect_parts(error_of([&] { check_joined_name("X.version", name, "save_dir"); }),
                 {std::string("X.version: \"") + name + "\" leads out of save_dir. Write a name without \"..\""});
  }
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
  EXPECT_TRUE(wait_until([&] { return folder.names().size() > 1; })) << "a temporary file";
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
  expect_parts(error_of([&] { (void)read_input("/dev/zero", 1 << 20); }), {"/dev/zero", "more than 1048576 bytes"});
}

TEST(ReadFile, WaitsForNoFifoAndReadsNoDevice) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  make_socket(folder / "socket");
  std::filesystem::create_symlink("fifo", folder / "link");
  for (const char* name : {"fifo", "link"}) {
    expect_parts(error_of([&] { (void)read_file(folder / name); }),
                 {"cannot read " + folder / name + ": it is a FIFO, not a regular file."});
  }
  expect_parts(error_of([&] { (void)read_file(folder / "socket"); }), {"it is a socket"});
  expect_parts(error_of([] { (void)read_file("/dev/zero"); }), {"it is a device"});
}

TEST(ReadInput, ReadsTheFifoThatAUserHasNamed) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(folder / "fifo") << "written"; });
  EXPECT_EQ(read_input(folder / "fifo"), "written");
  writer.join();
  EXPECT_EQ(read_input(folder.write("file", "x")), "x");
  expect_parts(error_of([&] { (void)read_input(folder.path()); }), {folder.path(), "Is a directory"});
}

TEST(ReadFile, ReportsWhyItCannot) {
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

TEST(MakeFolder, ReportsWhyItCannot) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "x");
  expect_parts(error_of([&] { make_folder(folder / "file/a"); }), {folder / "file/a", "Not a directory"});
  expect_parts(error_of([&] { make_folder(folder / "file"); }), {folder / "file", "Not a directory"});
}

}  // namespace
}  // namespace levin::files_test
