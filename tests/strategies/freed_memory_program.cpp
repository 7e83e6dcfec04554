// Trains in a process of its own, as what malloc keeps is the whole process's, and prints the page faults of each step:
//
//   freed_memory_program pipeline|dp
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "levin/core/process/console.h"
#include "levin/levin.h"

namespace freed_memory_program {
namespace {

constexpr int64_t kWidth = 256;
constexpr int64_t kRows = 2048;
constexpr int64_t kSteps = 25;

torch::nn::Sequential part() {
  torch::nn::Sequential blocks;
  for (int k = 0; k < 3; ++k) {
    blocks->push_back(torch::nn::Linear(kWidth, kWidth));
    blocks->push_back(torch::nn::ReLU());
  }
  return blocks;
}

struct TwoParts : levin::LightningModule {
  torch::nn::Sequential first{register_module("first", part())};
  torch::nn::Sequential second{register_module("second", part())};

  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return levin::call(second, levin::call(first, batch[0])).square().mean();
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 1e-3}); }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<TwoParts>();
  }
};

struct SameBatch : levin::Loader {
  levin::Batch batch{{torch::randn({kRows, kWidth})}};
  void start(int64_t, int64_t) override {}
  bool next(levin::Batch& next) override {
    next = batch;
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }
};

struct FaultPrinter : levin::Callback {
  int64_t before = 0;
  static int64_t faults() {
    rusage used = {};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
  }
  void on_train_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t) override {
    before = faults();
  }
  void on_train_batch_end(levin::Trainer&, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    std::printf("%lld\n", static_cast<long long>(faults() - before));
  }
};

}  // namespace

int run_program(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  at::set_num_threads(2);
  levin::Console::instance().capture([](const std::string&) {});
  levin::TrainerOptions options;
  options.logger = false;
  options.enable_checkpointing = options.enable_progress_bar = options.enable_model_summary = false;
  options.accelerator = "cpu";
  options.devices = int64_t{2};
  options.max_steps = kSteps;
  options.callbacks = {std::make_shared<FaultPrinter>()};
  options.strategy = "dp";
  if (kind == "pipeline") {
    options.strategy = levin::ModelParallel(
        {.placement = levin::Placement{{"first", 0}, {"second", 1}}, .pipeline = levin::PipelineOptions{4}});
  }
  TwoParts model;
  levin::Trainer(options).fit(model, std::make_shared<SameBatch>());
  return 0;
}

}  // namespace freed_memory_program
