#include "levin/core/process_memory.h"

#include <cstdlib>
#include <fstream>
#include <string>

namespace levin {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {  // "VmRSS:     1234 kB"
    const auto bytes = [&] { return std::strtoll(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024; };
    if (line.starts_with("VmHWM:")) memory.peak = bytes();
    if (line.starts_with("VmRSS:")) {
      memory.resident = bytes();
      break;  // it follows VmHWM
    }
  }
  return memory;
}

}  // namespace levin
