// Tokens a second of training a small GPT (examples/models/gpt.h) on the bytes of the King James Bible, on one core: a
// hand-written LibTorch loop with stock torch::optim, the Trainer with its defaults on the data module TextFile, a raw
// PyTorch loop with fused AdamW and Lightning (peers/gpt.py).
//
//   bench_gpt [--rounds N] [--quick]
#include "models/gpt.h"

#include <chrono>
#include <filesystem>
#include <stdexcept>

#include "levin/core/console.h"
#include "levin/data/text_reader.h"
#include "peer.h"
#include "rounds.h"

namespace bench::gpt {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 12;
constexpr int64_t kBlock = 64;

double tokens_a_second(Clock::time_point start, int64_t steps) {
  return static_cast<double>(steps * kBatch * kBlock) / std::chrono::duration<double>(Clock::now() - start).count();
}

GPTOptions model_options() {
  GPTOptions options;
  options.vocab_size = 256;
  options.block_size = kBlock;
  options.n_layer = options.n_head = 4;
  options.n_embd = 128;
  return options;
}

double hand_written_loop(const torch::Tensor& tokens, int64_t steps) {
  torch::manual_seed(0);
  GPT model(model_options());
  model.train();
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3).betas({0.9, 0.95}));
  const auto windows = tokens.unfold(0, kBlock + 1, 1);
  const auto start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    const auto places = torch::randint(windows.size(0), {kBatch}, torch::kLong);
    const auto blocks = windows.index_select(0, places).to(torch::kLong);
    optimizer.zero_grad();
    const auto logits = model.forward(blocks.narrow(1, 0, kBlock));
    const auto loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), blocks.narrow(1, 1, kBlock).flatten());
    loss.backward();
    optimizer.step();
  }
  return tokens_a_second(start, steps);
}

// From on_train_start to on_train_end, as in peers/gpt.py: without the set-up.
class Stopwatch : public levin::Callback {
 public:
  void on_train_start(levin::Trainer&, levin::LightningModule&) override { start_ = Clock::now(); }
  void on_train_end(levin::Trainer& trainer, levin::LightningModule&) override {
    figure = tokens_a_second(start_, trainer.global_step());
  }
  double figure = 0;

 private:
  Clock::time_point start_;
};

double trained_by_levin(int64_t steps) {
  const auto folder = std::filesystem::temp_directory_path() / "levin_bench_gpt";
  std::filesystem::remove_all(folder);
  torch::manual_seed(0);
  GPT model(model_options());
  levin::TextFile data({.block_size = kBlock, .batch_size = kBatch, .val_fraction = 0});
  const auto watch = std::make_shared<Stopwatch>();
  levin::Trainer trainer(
      levin::TrainerOptions{.max_steps = steps, .callbacks = {watch}, .default_root_dir = folder.string()});
  trainer.fit(model, data);
  std::filesystem::remove_all(folder);
  return watch->figure;
}

int run(const bench::Options& options) {
  bench::pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  const int64_t steps = options.quick ? 2 : 25;
  std::string text = levin::read_text(levin::kjv_path());
  const auto tokens = torch::from_blob(text.data(), {static_cast<int64_t>(text.size())}, torch::kByte);
  const auto peer = bench::Peer::start("gpt");
  bench::Report report("gpt");
  if (peer != nullptr) report.peers(peer->versions());

  std::vector<bench::Contender> contenders = {
      {"hand-written LibTorch loop", [&] { return hand_written_loop(tokens, steps); }},
      {"Trainer", [=] { return trained_by_levin(steps); }}};
  if (peer != nullptr) {
    const std::string count = std::to_string(steps);
    contenders.push_back({"raw PyTorch loop", [=] { return peer->round("raw " + count); }});
    contenders.push_back({"Lightning", [=] { return peer->round("lightning " + count); }});
  }
  const auto figures = bench::interleave(contenders, options);
  report.table("GPT of 4 layers, 128 wide, batches of 12 x 64 bytes, one thread", "tokens/s", figures);
  report.at_least("to_libtorch_loop", bench::ratio(figures, "Trainer", "hand-written LibTorch loop"), 1);
  report.at_least("to_raw_pytorch", bench::ratio(figures, "Trainer", "raw PyTorch loop"), 1);
  report.at_least("to_lightning", bench::ratio(figures, "Trainer", "Lightning"), 1);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = bench::read_options(argc, argv, 7);
  return bench::guarded([&] { return run(options); });
}

}  // namespace bench::gpt
