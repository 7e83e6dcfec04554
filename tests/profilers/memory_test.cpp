// A long run needs no more memory than a short one, and what is logged keeps no graph.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/device_stats_monitor.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/progress_bar.h"
#include "levin/callbacks/throughput_monitor.h"
#include "support/captured_console.h"
#include "support/sanitized.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::memory_test {
namespace {

using namespace test;

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;  // the second number is the resident set
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1024 * 1024);
}

// Steps of the run; LEVIN_MEMORY_STEPS=100000 for the long one.
int64_t wanted_steps() {
  const char* text = std::getenv("LEVIN_MEMORY_STEPS");
  return text != nullptr ? std::atoll(text) : 20'000;
}

struct Logging : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    const at::Tensor loss = TinyModule::training_step(batch, batch_idx);
    log("both", loss * 2, {.on_step = true, .on_epoch = true});
    log("number", 0.5);
    return loss;
  }
};

TEST(Memory, StaysFlatOverManyStepsWithLoggingAndValidation) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer keeps freed memory";
  constexpr int64_t kWarmup = 2'000;
  const TemporaryFolder folder;
  const CapturedConsole console;
  double before = 0;
  double most = 0;
  LambdaCallback watch(
      {.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
        const int64_t step = trainer.global_step();
        if (step == kWarmup) before = resident_megabytes();
        if (step > kWarmup && step % 1'000 == 0) most = std::max(most, resident_megabytes());
      }});
  TrainerOptions options = quiet(-1, {watch, ProgressBar(), DeviceStatsMonitor(), ThroughputMonitor()}, folder.path());
  options.logger = true;
  options.max_steps = wanted_steps();
  options.val_check_interval = int64_t{250};
  options.profiler = "simple";
  Logging module;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(4'000), tiny_loader(40));
  ASSERT_EQ(trainer.global_step(), wanted_steps());
  ASSERT_GT(before, 0);
  std::printf("%lld steps: %.2f MB after %lld, %.2f MB at most after that: %+.2f MB\n",
              static_cast<long long>(wanted_steps()), before, static_cast<long long>(kWarmup), most, most - before);
  RecordProperty("grown_mb", std::to_string(most - before));
  EXPECT_LT(most - before, 5);
}

// A node of a graph is held by one or the other, depending on LibTorch's version.
template <class Node>
std::weak_ptr<Node> weak(const std::shared_ptr<Node>& node) {
  return node;
}
template <class Node>
c10::weak_intrusive_ptr<Node> weak(const c10::intrusive_ptr<Node>& node) {
  return c10::weak_intrusive_ptr<Node>(node);
}

// Checks that the graph of a value of the previous step is freed when the next step starts.
struct Graphs : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = torch::mse_loss(layer->forward(batch[0]), batch[1]);
    const at::Tensor logged = loss * 3;  // nothing but log ever sees it
    is_gone = [graph = weak(logged.grad_fn())] { return graph.expired(); };
    if (logs) log("x", logged, options);
    if (keeps) kept = logged;
    return loss;
  }
  bool logs = true;
  bool keeps = false;
  LogOptions options = {};
  std::function<bool()> is_gone;
  at::Tensor kept = {};
};

std::vector<bool> graph_is_gone_after_each_step(Graphs& module) {
  std::vector<bool> gone;
  LambdaCallback look({.on_train_batch_end = [&](Trainer&, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
    gone.push_back(module.is_gone());
  }});
  TrainerOptions options = quiet(1, look);
  options.limit_train_batches = int64_t{3};
  Trainer(options).fit(module, tiny_loader(24));
  return gone;
}

TEST(Memory, NoGraphIsKeptByLog) {
  const std::vector<bool> all_gone(3, true);
  for (const LogOptions& options : std::vector<LogOptions>{{},
                                                           {.prog_bar = true},
                                                           {.on_step = true, .on_epoch = true},
                                                           {.on_epoch = true, .reduce_fx = ReduceFx::max}}) {
    Graphs module;
    module.options = options;
    EXPECT_EQ(graph_is_gone_after_each_step(module), all_gone);
  }
  Graphs keeping;  // the check itself sees a graph that is kept
  keeping.keeps = true;
  EXPECT_EQ(graph_is_gone_after_each_step(keeping), std::vector<bool>(3, false));
}

}  // namespace
}  // namespace levin::memory_test
