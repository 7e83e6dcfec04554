#include "levin/callbacks/device_stats_monitor.h"

#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <array>

#include "levin/core/console.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// The names of torch.cuda.memory_stats().
void add_allocator_stats(Metrics& metrics, c10::DeviceIndex device) {
  using Stats = c10::CachingAllocator::StatArray;
  const auto stats = at::accelerator::getDeviceStats(device);
  auto add = [&](const std::string& name, const Stats& counted) {
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

}  // namespace

DeviceStatsMonitor::DeviceStatsMonitor(DeviceStatsMonitorOptions options)
    : options_(checked(std::move(options), "DeviceStatsMonitorOptions")) {}

void DeviceStatsMonitor::setup(Trainer& trainer, LightningModule&, Stage stage) {
  started_step_ = -1;
  if (stage != Stage::fit) return;
  if (trainer.loggers().empty()) {
    if (trainer.plan().fast_dev_run) return;
    throw ConfigError(
        "DeviceStatsMonitor: the trainer has no logger to write to. Set TrainerOptions.logger, or drop the callback.");
  }
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
  add_allocator_stats(metrics, device.has_index() ? device.index() : static_cast<c10::DeviceIndex>(0));
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
  if (!trainer.plan().is_logged_step(step) || step == started_step_) return;
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
