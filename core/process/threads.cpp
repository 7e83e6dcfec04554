#include "levin/core/process/threads.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace levin {

namespace {

namespace fs = std::filesystem;

int64_t cores_by_affinity() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int64_t>(std::thread::hardware_concurrency());  // more than fit into a cpu_set_t
}

double number_in_file(const fs::path& path) {
  double value = -1;
  std::ifstream(path) >> value;
  return value;
}

// Cores by a group's quota of time; 0: it has none.
double quota_of(const fs::path& group) {
  std::string quota;
  double period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period) {  // version 2: "max 100000"
    std::istringstream text(quota);
    double time = 0;
    return (text >> time) && period > 0 ? time / period : 0;
  }
  const double time = number_in_file(group / "cpu.cfs_quota_us");  // version 1; -1: none
  const double per = number_in_file(group / "cpu.cfs_period_us");
  return time > 0 && per > 0 ? time / per : 0;
}

// A group's limit also applies to its children, so all groups up to the root count.
void limit_by_groups(UsableCores& cores, const fs::path& root, const std::string& group) {
  for (fs::path path = fs::path(group).relative_path();; path = path.parent_path()) {
    const double quota = quota_of(root / path);
    if (quota > 0 && std::ceil(quota) < static_cast<double>(cores.count)) {
      cores.count = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(quota)));
      cores.limit = "the CPU quota of the control group " + (root / path).string();
    }
    if (path.empty()) return;
  }
}

}  // namespace

UsableCores usable_cores(const std::string& proc, const std::string& sys) {
  UsableCores cores;
  cores.count = std::max<int64_t>(1, cores_by_affinity());
  if (cores.count < static_cast<int64_t>(std::thread::hardware_concurrency())) cores.limit = "the process's affinity";
  std::ifstream groups(fs::path(proc) / "self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", "4:cpu,cpuacct:/docker/1a2b"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path root = fs::path(sys) / "fs/cgroup";
    if (controllers == ",,") limit_by_groups(cores, root, line.substr(second + 1));
    if (controllers.find(",cpu,") != std::string::npos) limit_by_groups(cores, root / "cpu", line.substr(second + 1));
  }
  return cores;
}

// Looked up by name, because it must be LibTorch's OpenMP runtime; a LibTorch built without OpenMP has none, and its
// operators are not affected.
void set_openmp_threads(int count) {
  using Set = void (*)(int);
  static const auto set = reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(count);
}

}  // namespace levin
