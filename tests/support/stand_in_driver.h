// Runs a test of this program in a separate process that finds the stand-in for NVIDIA's driver.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/paths.h"

namespace levin::test {

/// The folder of the stand-in: where it was built, or next to this program in a bundle.
inline std::string stand_in_folder() {
  const std::filesystem::path built(stand_in_nvidia());
  std::error_code ignored;
  if (std::filesystem::exists(built, ignored)) return built.parent_path();
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "stand_in";
}

/// The exit status of the disabled tests that `filter` names, with a driver (stand_in_nvidia) that has `gpus`
/// GPUs.
inline int with_stand_in_driver(const std::string& filter, int gpus) {
  const pid_t child = ::fork();
  if (child == 0) {
    const char* before = std::getenv("LD_LIBRARY_PATH");
    const std::string folders = stand_in_folder() + (before == nullptr ? "" : std::string(":") + before);
    ::setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
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
