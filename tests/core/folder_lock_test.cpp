// One holder per folder, in this process and in others, however they end.
#include "levin/core/process/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/wait_until.h"

namespace levin::folder_lock_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using test::CapturedConsole;
using test::TemporaryFolder;
using test::wait_until;

constexpr milliseconds kAtOnce(0);

std::string refusal(const std::string& folder) {
  try {
    const FolderLock lock(folder, kAtOnce);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A different process that does its work, reports it and stays until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      work();
      (void)!::write(ends[1], "x", 1);
      while (true) ::pause();
    }
    ::close(ends[1]);
    char done = 0;
    ready_ = ::read(ends[0], &done, 1) == 1;
    ::close(ends[0]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] bool is_ready() const { return ready_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void send_kill() const { ::kill(pid_, SIGKILL); }
  void kill() {
    if (pid_ <= 0) return;
    send_kill();
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  bool ready_ = false;
};

TEST(FolderLock, RefusesASecondHolderAndNamesTheFirst) {
  const TemporaryFolder folder;
  const FolderLock first(folder / "run", kAtOnce);
  EXPECT_TRUE(first.is_held());
  const std::string message = refusal(folder / "run");
  EXPECT_NE(message.find("the folder " + folder / "run" + " belongs to a run that is still alive: process " +
                         std::to_string(::getpid()) + " on "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("another trainer.default_root_dir"), std::string::npos) << message;
  EXPECT_EQ(refusal(folder / "other"), "");
}

TEST(FolderLock, LeavesNoFileAndTheFolderIsFreeAgain) {
  const TemporaryFolder folder;
  { const FolderLock lock(folder.path(), kAtOnce); }
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(FolderLock, EndsWithTheProcessThatHoldsIt) {
  const TemporaryFolder folder;
  Child child([&] { new FolderLock(folder.path(), kAtOnce); });
  ASSERT_TRUE(child.is_ready());
  EXPECT_NE(refusal(folder.path()).find("process " + std::to_string(child.pid()) + " on "), std::string::npos);
  child.kill();
  EXPECT_EQ(folder.names(), std::vector<std::string>{"run.lock"}) << "of the killed one";
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(FolderLock, IsWaitedForWhileItsProcessIsAboutToEnd) {
  const TemporaryFolder folder;
  Child child([&] { new FolderLock(folder.path(), kAtOnce); });
  ASSERT_TRUE(child.is_ready());
  std::string told;
  Console::instance().capture([&](const std::string& line) {
    told += line;
    child.send_kill();
  });
  const FolderLock lock(folder.path(), minutes(2));
  Console::instance().capture({});
  EXPECT_TRUE(lock.is_held());
  EXPECT_TRUE(told.starts_with("Waiting for the run in " + folder.path() + " to end: process ")) << told;
}

TEST(FolderLock, IsNotKeptByAProgramThatTheHolderHasStarted) {
  const TemporaryFolder folder;
  const std::string started = folder / "started";
  Child child([&] {
    new FolderLock(folder / "run", kAtOnce);
    if (::fork() == 0) ::execl("/bin/sh", "sh", "-c", ("echo $$ > " + started + "; exec sleep 60").c_str(), nullptr);
    EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(started) && !read_file(started).empty(); }));
  });
  ASSERT_TRUE(child.is_ready());
  child.kill();
  EXPECT_EQ(refusal(folder / "run"), "");
  ::kill(std::stoi(read_file(started)), SIGKILL);
}

TEST(FolderLock, IsFreeOnceTheHolderHasReleasedItRegardlessOfItsForkedChildren) {
  const TemporaryFolder folder;
  std::unique_ptr<Child> child;
  {
    const FolderLock lock(folder.path(), kAtOnce);
    child = std::make_unique<Child>([] {});  // has a copy of the descriptor
  }
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(FolderLock, ShowsAStrangersWordsEscaped) {
  const TemporaryFolder folder;
  write_file_durably(folder / "run.lock", "evil\x1b[2J\n1;rm\nlong ago\r" + std::string(5000, 'x'));
  const int fd = ::open((folder / "run.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  const std::string message = refusal(folder.path());
  ::close(fd);
  EXPECT_NE(message.find("process 1;rm on evil\\x1b[2J, since long ago\\x0d"), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u);
}

TEST(FolderLock, FollowsNoLinkAndWritesNothingElse) {
  const TemporaryFolder folder;
  write_file_durably(folder / "victim", "precious");
  make_folder(folder / "a");
  make_folder(folder / "b");
  std::filesystem::create_symlink(folder / "victim", folder / "a/run.lock");
  std::filesystem::create_hard_link(folder / "victim", folder / "b/run.lock");
  make_folder(folder / "c/run.lock");
  for (const char* name : {"a", "b", "c"}) {
    const CapturedConsole console;
    const FolderLock lock(folder / name, kAtOnce);
    EXPECT_FALSE(lock.is_held()) << name;
    EXPECT_TRUE(console.has("nothing guards " + folder / name + " against a second run")) << console.text();
  }
  EXPECT_EQ(read_file(folder / "victim"), "precious");
}

// flock() fails in this process from now on, by the kernel itself.
void forbid_locks(int error_number) {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program = {filter.size(), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    ::_exit(3);
  }
}

TEST(FolderLock, WarnsWhereTheFileSystemHasNoLocks) {
  for (const int number : {ENOLCK, EOPNOTSUPP}) {
    const TemporaryFolder folder;
    const pid_t child = ::fork();
    if (child == 0) {
      forbid_locks(number);
      const CapturedConsole console;
      const FolderLock lock(folder.path(), kAtOnce);
      const bool warned =
          console.has("warning: nothing guards " + folder.path() + " against a second run: cannot lock " +
                      folder.path() + "/run.lock: " + system_error_text(number) + ".");
      ::_exit(warned && !lock.is_held() ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0) << system_error_text(number);
    EXPECT_TRUE(WIFEXITED(status));
  }
}

}  // namespace
}  // namespace levin::folder_lock_test
