// Settings of the simulated GPUs, from the environment.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>

namespace simulated {

struct Settings {
  int gpus = 1;                 // SIMULATED_GPUS
  size_t memory = 80ULL << 30;  // SIMULATED_GPU_MEMORY, in bytes, of all together
  double kernel_us = 2;         // SIMULATED_GPU_KERNEL_US: how long a kernel takes
  bool own_threads = false;     // SIMULATED_GPU_THREADS: each stream's work runs later, on a thread of its own
  bool only_small = false;      // SIMULATED_GPU_ONLY_SMALL: it computes what is small, such as the check of a loss
  std::string report = {};      // SIMULATED_GPU_REPORT: a file to which the counts are appended at the end
};

inline const Settings& settings() {
  static const Settings all = [] {
    const auto text = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    Settings read;
    if (!text("SIMULATED_GPUS").empty()) read.gpus = std::stoi(text("SIMULATED_GPUS"));
    if (!text("SIMULATED_GPU_MEMORY").empty()) read.memory = std::stoull(text("SIMULATED_GPU_MEMORY"));
    if (!text("SIMULATED_GPU_KERNEL_US").empty()) read.kernel_us = std::stod(text("SIMULATED_GPU_KERNEL_US"));
    read.own_threads = !text("SIMULATED_GPU_THREADS").empty();
    read.only_small = !text("SIMULATED_GPU_ONLY_SMALL").empty();
    read.report = text("SIMULATED_GPU_REPORT");
    return read;
  }();
  return all;
}

}  // namespace simulated
