// Training steps of a small convolutional network whose activations are 48 MiB each, which glibc returns to the system
// when they are freed and fetches again page by page: with that memory kept for the next step, as a fit does by itself,
// and without.
#include <torch/torch.h>

#include <cstdlib>
#include <string>

#include "levin/core/process/process_memory.h"
#include "levin/data/loading/dataloader.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"
#include "rounds.h"
#include "stopwatch.h"

namespace bench::freed_memory {

namespace {

// Activations of (48, 16, 128, 128) float32.
struct Net : levin::LightningModule {
  torch::nn::Sequential layers{torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)),
                               torch::nn::BatchNorm2d(16),
                               torch::nn::ReLU(),
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 1)),
                               torch::nn::BatchNorm2d(16),
                               torch::nn::GELU(),
                               torch::nn::AdaptiveAvgPool2d(1),
                               torch::nn::Flatten(),
                               torch::nn::Linear(16, 10)};
  Net() { register_module("layers", layers); }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return torch::cross_entropy_loss(layers->forward(batch[0]), batch[1]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.01}); }
};

// From the tenth step on, when a fit has decided.
class LaterSteps : public Stopwatch {
 public:
  void on_train_batch_end(levin::Trainer& trainer, levin::LightningModule& module, const torch::Tensor&,
                          const levin::Batch&, int64_t batch_idx) override {
    if (batch_idx != 9) return;
    on_train_start(trainer, module);
    faults_ = levin::page_faults();
  }
  void on_train_end(levin::Trainer& trainer, levin::LightningModule& module) override {
    Stopwatch::on_train_end(trainer, module);
    faults_ = levin::page_faults() - faults_;
    steps_ = trainer.global_step();
  }
  [[nodiscard]] double milliseconds_a_step() const {
    return microseconds_a_step() * static_cast<double>(steps_) / static_cast<double>(steps_ - 10) / 1000;
  }
  [[nodiscard]] double faults_a_step() const { return static_cast<double>(faults_) / static_cast<double>(steps_ - 10); }

 private:
  int64_t faults_ = 0, steps_ = 1;
};

struct Round {
  double milliseconds = 0, faults = 0;
};

Round train(bool keep, int64_t steps) {
  ::setenv("LEVIN_KEEP_FREED_MEMORY", keep ? "1" : "0", 1);
  torch::manual_seed(0);
  const auto data = std::make_shared<levin::TensorDataset>(
      std::vector<at::Tensor>{torch::rand({96, 1, 128, 128}), torch::randint(10, {96}, torch::kLong)});
  levin::DataLoader loader(data, {.batch_size = 48},
                           std::make_shared<levin::RandomSampler>(
                               96, levin::RandomSamplerOptions{.replacement = true, .num_samples = 48 * steps}));
  const auto watch = std::make_shared<LaterSteps>();
  levin::TrainerOptions options;
  options.max_epochs = 1;
  options.logger = false;
  options.enable_checkpointing = false;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.callbacks = {watch};
  Net net;
  levin::Trainer(options).fit(net, loader);
  return {watch->milliseconds_a_step(), watch->faults_a_step()};
}

int run(const Options& options) {
  pin_to_one_core();
  const int64_t steps = options.quick ? 12 : 25;
  Report report("freed_memory");
  double faults_kept = 0, faults_returned = 0;
  const auto measurements = interleave({{"returned",
                                         [&] {
                                           const Round round = train(false, steps);
                                           faults_returned = round.faults;
                                           return round.milliseconds;
                                         }},
                                        {"kept",
                                         [&] {
                                           const Round round = train(true, steps);
                                           faults_kept = round.faults;
                                           return round.milliseconds;
                                         }}},
                                       options);
  report.table("a step with activations of 48 MiB", "ms", measurements);
  report.number("kept_to_returned", ratio(measurements, "kept", "returned"));
  report.number("faults_a_step_returned", faults_returned);
  report.number("faults_a_step_kept", faults_kept);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 3);
  return guarded([&] { return run(options); });
}

}  // namespace bench::freed_memory
