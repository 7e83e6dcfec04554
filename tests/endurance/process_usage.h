// What this process uses, sampled during a long run: memory, descriptors, threads and processor time.
//
//   UsageLog usage(200);
//   usage.sample(step);
//   usage.write(path);  // JSON: a list for each column
#pragma once

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace levin::test {

/// What the process uses at one point in time.
struct ProcessUsage {
  int64_t step = 0;
  int64_t resident_bytes = 0;  // pages in memory, as the kernel counts them
  int64_t heap_bytes = 0;      // allocated by malloc and not freed
  int64_t descriptors = 0;
  int64_t threads = 0;
  double processor_seconds = 0;  // of all threads since the process started
  double seconds = 0;
};

/// Returns the number of entries of a folder of /proc/self.
inline int64_t entries_of(const char* folder) {
  DIR* open = ::opendir(folder);
  if (open == nullptr) throw std::runtime_error(std::string("cannot read ") + folder);
  int64_t count = -2;  // . and ..
  while (::readdir(open) != nullptr) ++count;
  ::closedir(open);
  return count;
}

inline ProcessUsage usage_of_this_process() {
  ProcessUsage usage;
  std::FILE* statm = std::fopen("/proc/self/statm", "r");
  long long all = 0, resident = 0;
  if (statm == nullptr || std::fscanf(statm, "%lld %lld", &all, &resident) != 2) {
    throw std::runtime_error("cannot read /proc/self/statm");
  }
  std::fclose(statm);
  usage.resident_bytes = resident * ::sysconf(_SC_PAGESIZE);
  const auto heap = ::mallinfo2();
  usage.heap_bytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  usage.descriptors = entries_of("/proc/self/fd") - 1;  // without the one that reads the folder
  usage.threads = entries_of("/proc/self/task");
  timespec spent{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  usage.processor_seconds = static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
  usage.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return usage;
}

/// Samples of a run. Its memory is allocated by the constructor, so that sampling itself does not grow.
class UsageLog {
 public:
  explicit UsageLog(size_t samples) { samples_.reserve(samples); }

  void sample(int64_t step) {
    if (samples_.size() == samples_.capacity()) throw std::runtime_error("more samples than expected");
    samples_.push_back(usage_of_this_process());
    samples_.back().step = step;
  }

  void write(const std::string& path) const {
    std::ofstream file(path);
    file.precision(17);
    write_column(file, "{\"step\": ", [](const ProcessUsage& usage) { return usage.step; });
    write_column(file, ",\n\"resident_bytes\": ", [](const ProcessUsage& usage) { return usage.resident_bytes; });
    write_column(file, ",\n\"heap_bytes\": ", [](const ProcessUsage& usage) { return usage.heap_bytes; });
    write_column(file, ",\n\"descriptors\": ", [](const ProcessUsage& usage) { return usage.descriptors; });
    write_column(file, ",\n\"threads\": ", [](const ProcessUsage& usage) { return usage.threads; });
    write_column(file, ",\n\"processor_seconds\": ", [](const ProcessUsage& usage) { return usage.processor_seconds; });
    write_column(file, ",\n\"seconds\": ", [](const ProcessUsage& usage) { return usage.seconds; });
    file << "}\n";
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  template <class Get>
  void write_column(std::ofstream& file, const char* opening, Get get) const {
    file << opening << "[";
    for (size_t k = 0; k < samples_.size(); ++k) file << (k == 0 ? "" : ", ") << get(samples_[k]);
    file << "]";
  }

  std::vector<ProcessUsage> samples_;
};

}  // namespace levin::test
