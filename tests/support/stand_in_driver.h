// Runs a test of this program in a process of its own that finds the stand-in for NVIDIA's driver.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace levin::test {

/// The exit status of the disabled tests that `filter` names, with a driver (LEVIN_STAND_IN_NVIDIA) that has `gpus`
/// GPUs.
inline int with_stand_in_driver(const std::string& filter, int gpus) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LD_LIBRARY_PATH", std::filesystem::path(LEVIN_STAND_IN_NVIDIA).parent_path().c_str(), 1);
    ::setenv("STAND_IN_GPUS", std::to_string(gpus).c_str(), 1);
    const std::string argument = "--gtest_filter=" + filter;
    ::execl("/proc/self/exe", "test", argument.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace levin::test
