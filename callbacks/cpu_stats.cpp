#include "levin/callbacks/cpu_stats.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <vector>

namespace levin {

namespace {

// "MemTotal:  16384 kB" lines; values in the file's own unit.
std::map<std::string, double> read_pairs(const std::string& path) {
  std::map<std::string, double> pairs;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    double value = 0;
    if (colon != std::string::npos && std::istringstream(line.substr(colon + 1)) >> value)
      pairs[line.substr(0, colon)] = value;
  }
  return pairs;
}

double used_percent(double total, double available) {
  return total > 0 ? 100 * (total - available) / total : 0;
}

}  // namespace

Metrics CpuStats::read() {
  Metrics metrics;
  read_processor(metrics);
  read_memory(metrics);
  read_process(metrics);
  return metrics;
}

// "cpu  user nice system idle iowait irq softirq steal guest guest_nice": proc(5). Guests' time is in user's and
// nice's.
void CpuStats::read_processor(Metrics& metrics) {
  std::ifstream file(proc_ + "/stat");
  std::string name;
  if (!(file >> name) || name != "cpu") return;
  double all = 0;
  double idle = 0;
  double value = 0;
  for (int i = 0; i < 8 && file >> value; ++i) {
    all += value;
    if (i == 3 || i == 4) idle += value;
  }
  const double busy = all - idle;
  if (all > all_) metrics["cpu_percent"] = 100 * (busy - busy_) / (all - all_);
  if (all == all_) metrics["cpu_percent"] = 0;  // no tick has passed
  busy_ = busy;
  all_ = all;
}

void CpuStats::read_memory(Metrics& metrics) const {
  const auto memory = read_pairs(proc_ + "/meminfo");
  auto percent = [&](const char* total, const char* available, const char* name) {
    const auto all = memory.find(total), left = memory.find(available);
    if (all != memory.end() && left != memory.end()) metrics[name] = used_percent(all->second, left->second);
  };
  percent("MemTotal", "MemAvailable", "cpu_vm_percent");
  percent("SwapTotal", "SwapFree", "cpu_swap_percent");
}

void CpuStats::read_process(Metrics& metrics) {
  const auto status = read_pairs(proc_ + "/self/status");
  auto take = [&](const char* from, const char* name, double unit) {
    const auto found = status.find(from);
    if (found != status.end()) metrics[name] = unit * found->second;
  };
  take("VmRSS", "process_rss_bytes", 1024);
  take("VmSize", "process_vm_bytes", 1024);
  take("VmSwap", "process_swap_bytes", 1024);
  take("Threads", "process_threads", 1);

  // "pid (name) state …": the name may contain anything, so fields are counted after its last parenthesis. utime and
  // stime are fields 14 and 15, in clock ticks.
  std::ifstream file(proc_ + "/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream rest(text.substr(name_end + 1));
  std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  if (fields.size() < 13) return;
  const double seconds = (std::stod(fields[11]) + std::stod(fields[12])) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto now = std::chrono::steady_clock::now();
  const double elapsed = std::chrono::duration<double>(now - process_read_).count();
  if (process_read_ != std::chrono::steady_clock::time_point() && elapsed > 0)
    metrics["process_cpu_percent"] = 100 * (seconds - process_seconds_) / elapsed;
  process_seconds_ = seconds;
  process_read_ = now;
}

}  // namespace levin
