// Signals that ask a program to end: which handlers are called, and what is restored.
#include "levin/core/process/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"

namespace levin::stop_signal_test {
namespace {

volatile std::sig_atomic_t calls = 0;
volatile std::sig_atomic_t last_sender = 0;

void count_call(int) {
  calls = calls + 1;
}

void note_sender(int, siginfo_t* info, void*) {
  calls = calls + 1;
  last_sender = static_cast<std::sig_atomic_t>(info->si_pid);
}

// The action of a signal while a test runs.
class Handles {
 public:
  Handles(int number, void (*handler)(int)) : number_(number) {
    struct sigaction action {};
    action.sa_handler = handler;
    ::sigaction(number_, &action, &before_);
    calls = 0;
  }
  ~Handles() { ::sigaction(number_, &before_, nullptr); }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

 private:
  int number_;
  struct sigaction before_ {};
};

auto handler_of(int number) {
  struct sigaction current {};
  ::sigaction(number, nullptr, &current);
  return current.sa_handler;
}

TEST(StopSignals, AreRecordedAndPassedToTheHandlerOfTheProgram) {
  for (const int number : {SIGINT, SIGTERM}) {
    const Handles host(number, count_call);
    {
      const StopSignalScope scope({.grace = std::chrono::seconds(20)});
      EXPECT_EQ(stop_signal(), 0);
      std::raise(number);
      EXPECT_EQ(stop_signal(), number);
      EXPECT_EQ(calls, 1);
      std::raise(number);  // the program's handler decides what a repeated one does
      EXPECT_EQ(calls, 2);
    }
    EXPECT_EQ(handler_of(number), &count_call);
    std::raise(number);
    EXPECT_EQ(calls, 3);
  }
}

TEST(StopSignals, ReachAHandlerThatTakesInformation) {
  const Handles restored(SIGINT, SIG_DFL);
  struct sigaction action {};
  action.sa_sigaction = note_sender;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGINT, &action, nullptr);
  {
    const StopSignalScope scope;
    ::kill(::getpid(), SIGINT);
    EXPECT_EQ(stop_signal(), SIGINT);
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(last_sender, ::getpid());
  std::raise(SIGINT);
  EXPECT_EQ(calls, 2);
}

TEST(StopSignals, OfOtherPurposesStayWithTheProgram) {
  for (const int number : {SIGHUP, SIGUSR1}) {
    const Handles host(number, count_call);
    const StopSignalScope scope;
    std::raise(number);
    EXPECT_EQ(stop_signal(), 0);
    EXPECT_EQ(calls, 1);
  }
}

TEST(StopSignals, ThatAreIgnoredStayIgnored) {
  const Handles ignored(SIGINT, SIG_IGN);
  {
    const StopSignalScope scope;
    std::raise(SIGINT);
    EXPECT_EQ(stop_signal(), 0);
  }
  EXPECT_EQ(handler_of(SIGINT), SIG_IGN);
}

TEST(StopSignals, AHandlerThatTheProgramInstallsInsideTheScopeStays) {
  const Handles before(SIGTERM, SIG_DFL);
  {
    const StopSignalScope scope;
    std::signal(SIGTERM, count_call);
  }
  EXPECT_EQ(handler_of(SIGTERM), &count_call);
}

void end_with_a_signal() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::raise(number);
}

TEST(StopSignalsDeathTest, AfterTheWorkOfAProgramDoNotChangeItsStatus) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::atexit(end_with_a_signal);
        std::exit(detail::guarded_main([] {
          const StopSignalScope scope;
          return 0;
        }));
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignalsDeathTest, AfterTheWorkOfAProgramReachItsOwnHandler) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, [](int) { std::_Exit(7); });
        (void)detail::guarded_main([] { return 0; });
        std::raise(SIGTERM);
        std::_Exit(0);
      },
      testing::ExitedWithCode(7), "");
}

TEST(StopSignalName, IsWhatUsersCallIt) {
  EXPECT_EQ(stop_signal_name(SIGINT), "Ctrl-C");
  EXPECT_EQ(stop_signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(stop_signal_name(SIGHUP), "SIGHUP");
  EXPECT_EQ(stop_signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(stop_signal_name(SIGUSR2), strsignal(SIGUSR2)) << "any other as the system calls it";
}

}  // namespace
}  // namespace levin::stop_signal_test
