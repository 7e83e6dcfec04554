#include "gpt_runs.h"

#include <ATen/DeviceAccelerator.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "levin/data/text/text_reader.h"
#include "levin/precision/autocast.h"
#include "stopwatch.h"

namespace bench::gpt {

namespace {

torch::Device device_of(const Work& work) {
  return torch::Device(work.gpu ? torch::kCUDA : torch::kCPU);
}

// A GPU works on after the host has done its part.
class DeviceStopwatch : public Stopwatch {
 public:
  explicit DeviceStopwatch(const Work& work) : gpu_(work.gpu) {}
  void on_train_end(levin::Trainer& trainer, levin::LightningModule& module) override {
    if (gpu_) at::accelerator::synchronizeDevice(0);
    Stopwatch::on_train_end(trainer, module);
  }

 private:
  bool gpu_;
};

}  // namespace

GPTOptions model_options(const Work& work) {
  GPTOptions options;
  options.vocab_size = 256;
  options.block_size = work.block;
  options.n_layer = options.n_head = 4;
  options.n_embd = 128;
  return options;
}

int64_t count_parameters() {
  int64_t count = 0;
  for (const auto& parameter : GPT(model_options()).parameters()) count += parameter.numel();
  return count;
}

at::Tensor load_bytes() {
  std::string text = levin::read_text(levin::kjv_path());
  return torch::from_blob(text.data(), {static_cast<int64_t>(text.size())}, torch::kByte).clone();
}

torch::Tensor random_loss(GPT& model, const at::Tensor& bytes, const Work& work) {
  const auto windows = bytes.unfold(0, work.block + 1, 1);
  const auto places = torch::randint(windows.size(0), {work.batch}, torch::kLong);
  const auto blocks = windows.index_select(0, places).to(torch::kLong).to(device_of(work));
  const levin::Autocast autocast(device_of(work).type(), torch::kBFloat16, {.enabled = work.gpu});
  const auto logits = model.forward(blocks.narrow(1, 0, work.block));
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), blocks.narrow(1, 1, work.block).flatten());
}

double hand_written_loop(const Work& work, const at::Tensor& bytes, int64_t steps) {
  using Clock = std::chrono::steady_clock;
  torch::manual_seed(0);
  GPT model(model_options(work));
  model.train();
  model.to(device_of(work));
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3).betas({0.9, 0.95}));
  const auto start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    random_loss(model, bytes, work).backward();
    optimizer.step();
  }
  if (work.gpu) at::accelerator::synchronizeDevice(0);
  return static_cast<double>(steps * work.tokens()) / std::chrono::duration<double>(Clock::now() - start).count();
}

double trained_by_levin(const Work& work, int64_t steps, levin::TrainerOptions options) {
  const bool alone = options.strategy.empty() || options.strategy.is_name("auto");
  // Ranks share a folder; runs side by side do not.
  const std::string name = alone ? "levin_bench_gpt_" + std::to_string(::getpid()) : "levin_bench_gpt";
  const auto folder = std::filesystem::temp_directory_path() / name;
  if (alone) std::filesystem::remove_all(folder);
  torch::manual_seed(0);
  GPT model(model_options(work));
  levin::TextFile data({.block_size = work.block, .batch_size = work.batch, .val_fraction = 0});
  const auto watch = std::make_shared<DeviceStopwatch>(work);
  options.max_steps = steps;
  options.callbacks.push_back(watch);
  options.default_root_dir = folder.string();
  options.accelerator = work.gpu ? "gpu" : "cpu";
  if (work.gpu) options.precision = "bf16-mixed";
  options.record_steps = work.record_steps;
  levin::Trainer(std::move(options)).fit(model, data);
  if (alone) std::filesystem::remove_all(folder);
  return watch->items_a_second(work.tokens());
}

}  // namespace bench::gpt
