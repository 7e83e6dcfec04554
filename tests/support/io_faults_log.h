// Memory shared by the process under test and its parent: plain data, also in a mapped file.
#pragma once

#include <atomic>

#include "support/io_faults.h"

namespace levin::test {

struct IoFaultLog {
  static constexpr int kMaxCalls = 4000;
  struct Call {
    char name[12];
    char path[244];
  };

  std::atomic<int> count = 0;
  std::atomic<bool> injected = false;
  char error[4000] = {};
  Call calls[kMaxCalls] = {};
};

/// Environment of a program under LD_PRELOAD: folder, call, fault as a number, "1" if it lasts, the log's file.
inline constexpr const char* kIoFaultsVariable = "LEVIN_IO_FAULTS";

/// From now on this process' calls on `folder` are counted, logged and, as planned, failed. `folder` and `log` must
/// outlive the process or disarm_io_faults().
void arm_io_faults(const char* folder, const IoPlan& plan, IoFaultLog* log);
void disarm_io_faults();

}  // namespace levin::test
