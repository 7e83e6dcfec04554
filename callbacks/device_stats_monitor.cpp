#include "levin/callbacks/device_stats_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "levin/callbacks/monitor.h"
#include "levin/core/process/console.h"
#include "levin/libtorch/device_memory.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// The names of torch.cuda.memory_stats().
void add_allocator_stats(Metrics& metrics, at::Device device) {
  const DeviceStats stats = device_stats(device);
  auto add = [&](const std::string& name, const auto& counted) {
    constexpr std::array pools{"all", "small_pool", "large_pool"};
    for (size_t i = 0; i < pools.size(); ++i) {
      metrics[name + "." + pools[i] + ".current"] = static_cast<double>(counted[i].current);
      metrics[name + "." + pools[i] + ".peak"] = static_cast<double>(counted[i].peak);
    }
  };
  add("allocated_bytes", stats.allocated_bytes);
  add("reserved_bytes", stats.reserved_bytes);
  add("active_bytes", stats.active_bytes);
  add("inactive_split_bytes", stats.inactive_split_bytes);
  metrics["num_ooms"] = static_cast<double>(stats.num_ooms);
  metrics["num_alloc_retries"] = static_cast<double>(stats.num_alloc_retries);
  metrics["num_device_alloc"] = static_cast<double>(stats.num_device_alloc);
  metrics["num_device_free"] = static_cast<double>(stats.num_device_free);
}

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

DeviceStatsMonitor::DeviceStatsMonitor(DeviceStatsMonitorOptions options)
    : options_(checked(std::move(options), "DeviceStatsMonitorOptions")) {}

void DeviceStatsMonitor::setup(Trainer& trainer, LightningModule&, Stage stage) {
  started_step_ = -1;
  if (stage != Stage::fit || !has_logger(trainer, "DeviceStatsMonitor")) return;
  if (!options_.filter_keys.empty()) check_filter(trainer);
}

void DeviceStatsMonitor::check_filter(const Trainer& trainer) {
  (void)stats(trainer);  // percentages of time need two readings
  std::vector<std::string> known;
  for (const auto& [name, value] : stats(trainer)) known.push_back(name);
  for (const auto& key : options_.filter_keys) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    Console::instance().warn("DeviceStatsMonitorOptions.filter_keys: there is no \"" + key + "\" here." +
                             did_you_mean(key, known) + " There are: " + join(known) + ".");
  }
}

Metrics DeviceStatsMonitor::stats(const Trainer& trainer) {
  const at::Device device = trainer.device();
  Metrics metrics;
  if (options_.cpu_stats.value_or(device.is_cpu())) metrics = cpu_.read();
  if (!device.is_cuda()) return metrics;
  if (!gpu_asked_) {
    gpu_asked_ = true;
    try {
      gpu_ = std::make_shared<Nvml>(device.has_index() ? device.index() : 0);
    } catch (const Error& error) {
      Console::instance().warn(std::string("DeviceStatsMonitor: no utilization, temperature and power of the GPU: ") +
                               error.what());
    }
  }
  if (gpu_ != nullptr) metrics.merge(gpu_->read());
  add_allocator_stats(metrics, device);
  return metrics;
}

void DeviceStatsMonitor::write(Trainer& trainer, const std::string& hook, int64_t step) {
  if (trainer.loggers().empty()) return;
  Metrics row;
  for (const auto& [name, value] : stats(trainer)) {
    const auto& keep = options_.filter_keys;
    if (!keep.empty() && std::find(keep.begin(), keep.end(), name) == keep.end()) continue;
    row["DeviceStatsMonitor." + hook + "/" + name] = value;
  }
  if (!row.empty()) trainer.log_system(row, step);
}

void DeviceStatsMonitor::on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) {
  const int64_t step = trainer.logging_step();
  if (!trainer.is_logged_window() || step == started_step_) return;
  started_step_ = step;
  write(trainer, "on_train_batch_start", step);
}

void DeviceStatsMonitor::on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&,
                                            int64_t) {
  if (trainer.ends_logged_window()) write(trainer, "on_train_batch_end", trainer.logging_step());
}

// Lightning writes at each evaluation batch if the training's step happens to be a logged one, and never in test; here
// every log_every_n_steps-th batch, at the count of evaluation batches, like other values of evaluations.
void DeviceStatsMonitor::write_evaluated(Trainer& trainer, const std::string& hook, bool batch_ends) {
  if (trainer.sanity_checking()) return;
  const int64_t batch = evaluated_;
  if (batch_ends) ++evaluated_;
  if (trainer.plan().is_logged_step(batch)) write(trainer, hook, batch);
}

}  // namespace levin
