// What a test program's main() ends with: GoogleTest's RUN_ALL_TESTS(), or several suites one after another, each in a
// separate process that need not load LibTorch again, which takes longer than most suites.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace levin::test {

inline constexpr int kAllSkipped = 77;

// The suites of the argument --suites=A:B:…; none for a developer's own filter, and in the processes of death tests,
// which GoogleTest starts with this process's arguments.
inline std::vector<std::string> wanted_suites(int argc, char** argv) {
  constexpr std::string_view kOption = "--suites=";
  std::vector<std::string> suites;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--gtest_filter") || argument.starts_with("--gtest_internal")) return {};
    if (!argument.starts_with(kOption)) continue;
    std::istringstream names{std::string(argument.substr(kOption.size()))};
    for (std::string name; std::getline(names, name, ':');) suites.push_back(name);
  }
  return suites;
}

/// For the end of main(), with its arguments. `--suites=A:B` runs the suites A and B in forked processes, and prints a
/// line `[ SUITE    ] A passed in 0.12 s` (or failed, or skipped) after each; test_summary.py reads these. Returns 1 if
/// one has failed, 77 if every test was skipped, 0 otherwise. The program may not have started a thread.
inline int run_suites(int argc, char** argv) {
  const std::vector<std::string> suites = wanted_suites(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  if (suites.empty()) return RUN_ALL_TESTS();
  bool failed = false;
  bool skipped = true;
  for (const std::string& suite : suites) {
    std::cout.flush();
    std::fflush(nullptr);
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      GTEST_FLAG_SET(filter, suite + ".*");
      const int status = RUN_ALL_TESTS();
      const testing::UnitTest& all = *testing::UnitTest::GetInstance();
      std::exit(status == 0 && all.successful_test_count() == 0 && all.skipped_test_count() > 0 ? kAllSkipped : status);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) {
      std::perror("run_suites");
      return 1;
    }
    if (WIFSIGNALED(status)) std::printf("%s was ended by signal %d\n", suite.c_str(), WTERMSIG(status));
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    failed = failed || (code != 0 && code != kAllSkipped);
    skipped = skipped && code == kAllSkipped;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("[ SUITE    ] %s %s in %.2f s\n", suite.c_str(),
                code == 0             ? "passed"
                : code == kAllSkipped ? "skipped"
                                      : "failed",
                took.count());
  }
  return failed ? 1 : skipped ? kAllSkipped : 0;
}

}  // namespace levin::test
