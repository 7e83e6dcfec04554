// The machine's readings, compared with /proc as this process sees it and with a replacement for NVIDIA's driver.
#include "levin/callbacks/device_stats_monitor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "callbacks/quiet_trainer.h"
#include "support/captured_console.h"
#include "support/field_count.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::device_stats_monitor_test {
namespace {

using namespace test;

void burn(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  volatile double sum = 0;
  while (std::chrono::steady_clock::now() < end) sum = sum + 1;
}

TEST(CpuStats, TellsOfTheMachineAndThisProcess) {
  CpuStats stats;
  EXPECT_FALSE(stats.read().contains("process_cpu_percent")) << "a share needs two looks";
  burn(0.1);
  const Metrics now = stats.read();
  for (const char* percent : {"cpu_percent", "cpu_vm_percent", "cpu_swap_percent"}) {
    EXPECT_GE(now.at(percent), 0) << percent;
    EXPECT_LE(now.at(percent), 100) << percent;
  }
  EXPECT_GT(now.at("process_cpu_percent"), 5) << "it has just burnt a core";
  EXPECT_GE(now.at("process_threads"), 1);
  EXPECT_GT(now.at("process_vm_bytes"), now.at("process_rss_bytes"));
  std::vector<char> ballast(64 << 20, 1);
  const double grown = stats.read().at("process_rss_bytes") - now.at("process_rss_bytes");
  EXPECT_GE(grown, 60e6) << ballast[1];
  EXPECT_LT(grown, 80e6);
}

TEST(CpuStats, ReadsProcAsItsManualSays) {
  const TemporaryFolder proc;
  std::filesystem::create_directories(proc / "self");
  auto write = [&](const std::string& name, const std::string& text) { std::ofstream(proc / name) << text; };
  write("stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1 1\n");
  write("meminfo",
        "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    250 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n");
  write("self/status", "Name:\tx\nVmRSS:\t  2048 kB\nVmSize:\t 4096 kB\nVmSwap:\t 0 kB\nThreads:\t3\n");
  CpuStats stats(proc.path());
  Metrics read = stats.read();
  EXPECT_DOUBLE_EQ(read.at("cpu_percent"), 20);
  EXPECT_DOUBLE_EQ(read.at("cpu_vm_percent"), 75);
  EXPECT_DOUBLE_EQ(read.at("cpu_swap_percent"), 0);
  EXPECT_EQ(read.at("process_rss_bytes"), 2048 * 1024);
  EXPECT_EQ(read.at("process_threads"), 3);
  write("stat", "cpu  130 0 140 720 110 0 0 0 50 0\n");
  EXPECT_DOUBLE_EQ(stats.read().at("cpu_percent"), 70) << "of 100 ticks since, 30 were idle";
  EXPECT_DOUBLE_EQ(stats.read().at("cpu_percent"), 0) << "no tick has passed";
  EXPECT_TRUE(CpuStats(proc / "nothing").read().empty());
}

struct Recorder final : Logger {
  void start(const std::string&, bool) override {}
  void log_metrics(const MetricList& metrics, const LogPoint& at) override {
    for (const auto& [name, value] : metrics) steps[name].push_back(at.step);
  }
  std::map<std::string, std::vector<int64_t>> steps;
};

std::map<std::string, std::vector<int64_t>> logged(DeviceStatsMonitorOptions options, int64_t accumulate = 1) {
  auto recorder = std::make_shared<Recorder>();
  TrainerOptions trainer_options = quiet(1, DeviceStatsMonitor(std::move(options)));
  trainer_options.logger = recorder;
  trainer_options.log_every_n_steps = 2;
  trainer_options.accumulate_grad_batches = accumulate;
  TinyModule module;
  Trainer(trainer_options).fit(module, tiny_loader(24), tiny_loader(16));
  return recorder->steps;
}

using Steps = std::vector<int64_t>;

TEST(DeviceStatsMonitor, WritesUnderLightningsNamesAtLoggedSteps) {
  const auto steps = logged({});
  EXPECT_EQ(steps.at("DeviceStatsMonitor.on_train_batch_start/cpu_percent"), (Steps{1, 3, 5}));
  EXPECT_EQ(steps.at("DeviceStatsMonitor.on_train_batch_end/cpu_vm_percent"), (Steps{1, 3, 5}));
  EXPECT_EQ(steps.at("DeviceStatsMonitor.on_train_batch_end/process_rss_bytes"), (Steps{1, 3, 5}));
  EXPECT_EQ(steps.at("DeviceStatsMonitor.on_validation_batch_start/cpu_swap_percent"), (Steps{1, 3}))
      << "the sanity check is left out";
  EXPECT_EQ(steps.at("DeviceStatsMonitor.on_validation_batch_end/cpu_swap_percent"), (Steps{1, 3}));
}

TEST(DeviceStatsMonitor, AnAccumulationWindowHasOneRowAtEachEnd) {
  const auto steps = logged({}, 2);  // six batches, three windows: the second is logged
  EXPECT_EQ(steps.at("DeviceStatsMonitor.on_train_batch_start/cpu_percent"), (Steps{1}));
  EXPECT_EQ(steps.at("DeviceStatsMonitor.on_train_batch_end/cpu_percent"), (Steps{1}));
}

TEST(DeviceStatsMonitor, WritesWhatIsAskedFor) {
  const CapturedConsole console;
  const auto steps = logged({.filter_keys = {"process_rss_bytes", "cpu_percnt"}});
  EXPECT_TRUE(steps.contains("DeviceStatsMonitor.on_train_batch_end/process_rss_bytes"));
  EXPECT_FALSE(steps.contains("DeviceStatsMonitor.on_train_batch_end/cpu_percent"));
  EXPECT_TRUE(console.has("there is no \"cpu_percnt\" here. Did you mean \"cpu_percent\"?")) << console.text();
  for (const auto& [name, at] : logged({.cpu_stats = false})) EXPECT_FALSE(has(name, "DeviceStatsMonitor")) << name;
  EXPECT_EQ(levin::testing::field_count<DeviceStatsMonitorOptions>(), field_names<DeviceStatsMonitorOptions>().size());
}

TEST(DeviceStatsMonitor, NeedsALogger) {
  TinyModule module;
  Trainer trainer(quiet(1, DeviceStatsMonitor()));
  EXPECT_TRUE(
      has(error_of([&] { trainer.fit(module, tiny_loader(8)); }), "DeviceStatsMonitor: the trainer has no logger"));
}

TEST(Nvml, ReportsWhatIsMissing) {
  const std::string missing = error_of([] { const Nvml gpu(0); });
  if (missing.empty()) GTEST_SKIP() << "this machine has NVIDIA's driver";
  EXPECT_TRUE(has(missing, "libnvidia-ml.so.1")) << missing;
  EXPECT_TRUE(has(missing, "driver")) << missing;
}

// Run by the next test, in a process of its own that finds the stand-in for NVIDIA's driver.
TEST(Nvml, DISABLED_ReadsTheStandIn) {
  const Nvml gpu(0);
  EXPECT_EQ(gpu.name(), "NVIDIA H200");
  EXPECT_EQ(gpu.read(), (Metrics{{"gpu_utilization_percent", 87},
                                 {"gpu_memory_utilization_percent", 41},
                                 {"gpu_memory_used_bytes", 1e9},
                                 {"gpu_memory_total_bytes", 150e9},
                                 {"gpu_power_watts", 312.5}}))
      << "and no temperature, which is not supported there";
  EXPECT_TRUE(has(error_of([] { const Nvml other(3); }), "CUDA knows no GPU 3"));
}

TEST(Nvml, ReadsWhatTheDriverTells) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LD_LIBRARY_PATH", std::filesystem::path(test::stand_in_nvidia()).parent_path().c_str(), 1);
    ::execl("/proc/self/exe", "callbacks_test", "--gtest_filter=Nvml.DISABLED_ReadsTheStandIn",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace levin::device_stats_monitor_test
