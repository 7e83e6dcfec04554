#include "gpt_runs.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "levin/precision/autocast.h"
#include "models/bible.h"
#include "steady_stopwatch.h"
#include "stopwatch.h"

namespace bench::gpt {

namespace {

torch::Device device_of(const Work& work) {
  return torch::Device(work.gpu ? torch::kCUDA : torch::kCPU);
}

}  // namespace

GPTOptions model_options(const Work& work) {
  GPTOptions options;
  options.vocab_size = work.vocab;
  options.block_size = work.block;
  options.n_layer = work.layers;
  options.n_head = work.heads;
  options.n_embd = work.width;
  return options;
}

int64_t count_parameters(const Work& work) {
  int64_t count = 0;
  for (const auto& parameter : GPT(model_options(work)).parameters()) count += parameter.numel();
  return count;
}

at::Tensor load_bytes() {
  std::string text = bible_text();
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
  torch::manual_seed(0);
  GPT model(model_options(work));
  model.train();
  model.to(device_of(work));
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3).betas({0.9, 0.95}));
  const int64_t skipped = work.gpu ? kSkippedSteps : 0;
  auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < skipped + steps; ++step) {
    if (step == skipped) start = time_when_done(work.gpu);
    optimizer.zero_grad();
    random_loss(model, bytes, work).backward();
    optimizer.step();
  }
  const std::chrono::duration<double> seconds = time_when_done(work.gpu) - start;
  return static_cast<double>(steps * work.tokens()) / seconds.count();
}

double trained_by_levin(const Work& work, int64_t steps, levin::TrainerOptions options) {
  const bool alone = options.strategy.empty() || options.strategy.is_name("auto");
  // Ranks share a folder; runs side by side do not.
  const std::string name = alone ? "levin_bench_gpt_" + std::to_string(::getpid()) : "levin_bench_gpt";
  const auto folder = std::filesystem::temp_directory_path() / name;
  if (alone) std::filesystem::remove_all(folder);
  torch::manual_seed(0);
  GPT model(model_options(work));
  BibleText data({.block_size = work.block, .batch_size = work.batch, .val_fraction = 0});
  const auto watch = std::make_shared<Stopwatch>();
  const auto steady = std::make_shared<SteadyStopwatch>(steps, work.gpu);
  options.max_steps = work.gpu ? kSkippedSteps + steps : steps;
  if (work.gpu) {
    options.callbacks.push_back(steady);
  } else {
    options.callbacks.push_back(watch);
  }
  options.default_root_dir = folder.string();
  options.accelerator = work.gpu ? "gpu" : "cpu";
  if (work.gpu) options.precision = "bf16-mixed";
  options.record_steps = work.record_steps;
  levin::Trainer(std::move(options)).fit(model, data);
  if (alone) std::filesystem::remove_all(folder);
  if (work.gpu) return static_cast<double>(work.tokens()) / steady->seconds_a_step();
  return watch->items_a_second(work.tokens());
}

}  // namespace bench::gpt
