// What a Trainer costs: the time of one step of MLP 784-64-10, batch 64, SGD, on Fashion-MNIST, one thread, by a
// hand-written LibTorch loop and by the Trainer with logging, progress and checkpointing at their defaults.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "levin/core/console.h"
#include "levin/levin.h"
#include "rounds.h"

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 64;
constexpr int64_t kEpochs = 5;
constexpr int kRounds = 9;

double microseconds(Clock::time_point start, int64_t steps) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / static_cast<double>(steps);
}

nn::Sequential make_net() {
  torch::manual_seed(0);
  return nn::Sequential(nn::Linear(784, 64), nn::ReLU(), nn::Linear(64, 10));
}

struct Data {
  torch::Tensor x;  // (60000, 784) float32
  torch::Tensor y;  // (60000) int64
};

Data load_data() {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  const auto images = levin::read_idx(folder + "train-images-idx3-ubyte.gz");
  const auto labels = levin::read_idx(folder + "train-labels-idx1-ubyte.gz");
  return {images.flatten(1).to(torch::kFloat) / 255, labels.to(torch::kLong)};
}

double hand_written_loop(const Data& data, int64_t epochs = kEpochs) {
  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const int64_t batches = (data.x.size(0) + kBatch - 1) / kBatch;
  const auto start = Clock::now();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto order = torch::randperm(data.x.size(0), torch::kLong);
    for (int64_t b = 0; b < batches; ++b) {
      const auto indices = order.slice(0, b * kBatch, (b + 1) * kBatch);
      const auto x = data.x.index_select(0, indices);
      const auto y = data.y.index_select(0, indices);
      optimizer.zero_grad();
      const auto loss = F::cross_entropy(net->forward(x), y);
      loss.backward();
      optimizer.step();
    }
  }
  return microseconds(start, epochs * batches);
}

class Mlp : public levin::LightningModule {
 public:
  explicit Mlp(int logs) : logs_(logs) {
    register_module("net", net_);
    for (int i = 0; i < logs; ++i) names_.push_back("metric_" + std::to_string(i));
  }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto loss = F::cross_entropy(net_->forward(batch[0]), batch[1]);
    for (int i = 0; i < logs_; ++i) log(names_[static_cast<size_t>(i)], loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }

 private:
  nn::Sequential net_ = make_net();
  int logs_;
  std::vector<std::string> names_ = {};
};

// From on_train_start to on_train_end: epochs, logging, progress and the checkpoints, without the set-up.
class Stopwatch : public levin::Callback {
 public:
  void on_train_start(levin::Trainer&, levin::LightningModule&) override { start = Clock::now(); }
  void on_train_end(levin::Trainer& trainer, levin::LightningModule&) override {
    figure = microseconds(start, trainer.global_step());
  }
  Clock::time_point start;
  double figure = 0;
};

// The time of one log call, measured where it happens: in the training_step of a real fit, over 200 calls of ten
// metrics known from the batches before.
class LogCost : public levin::LightningModule {
 public:
  LogCost() { register_module("net", net_); }
  torch::Tensor training_step(const levin::Batch& batch, int64_t batch_idx) override {
    auto loss = F::cross_entropy(net_->forward(batch[0]), batch[1]);
    const auto start = Clock::now();
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (const auto& name : names_) log(name, loss);
    }
    if (batch_idx > 0) total_ += std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (batch_idx > 0) calls_ += 200;
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }
  [[nodiscard]] double figure() const { return total_ / static_cast<double>(calls_); }

 private:
  nn::Sequential net_ = make_net();
  std::vector<std::string> names_ = {"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"};
  double total_ = 0;
  int64_t calls_ = 0;
};

std::shared_ptr<levin::DataLoader> make_loader(const Data& data) {
  return std::make_shared<levin::DataLoader>(
      std::make_shared<levin::TensorDataset>(std::vector<at::Tensor>{data.x, data.y}),
      levin::DataLoaderOptions{.batch_size = kBatch, .shuffle = true});
}

double log_call(const Data& data) {
  LogCost model;
  levin::Trainer trainer(levin::TrainerOptions{
      .max_epochs = 1, .limit_train_batches = 200, .logger = false, .enable_checkpointing = false});
  trainer.fit(model, make_loader(data));
  return model.figure();
}

double trained_by_levin(const Data& data, int logs, bool barebones, int64_t epochs = kEpochs) {
  const auto folder = std::filesystem::temp_directory_path() / "levin_bench_overhead";
  std::filesystem::remove_all(folder);
  Mlp model(logs);
  auto watch = std::make_shared<Stopwatch>();
  levin::Trainer trainer(levin::TrainerOptions{
      .max_epochs = epochs, .callbacks = {watch}, .default_root_dir = folder.string(), .barebones = barebones});
  trainer.fit(model, make_loader(data));
  std::filesystem::remove_all(folder);
  return watch->figure;
}

}  // namespace

// bench_overhead: the table. bench_overhead loop|trainer EPOCHS: that alone, for `valgrind --tool=callgrind`, which
// counts instructions and is the same however busy the machine is; the difference of two numbers of epochs leaves out
// the start.
int main(int argc, char** argv) {
  bench::pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  const Data data = load_data();
  if (argc == 3) {
    const bool loop = std::string(argv[1]) == "loop";
    const double figure =
        loop ? hand_written_loop(data, std::stol(argv[2])) : trained_by_levin(data, 1, false, std::stol(argv[2]));
    std::printf("%s: %.2f us a step\n", argv[1], figure);
    return 0;
  }
  const auto figures = bench::interleave({{"hand-written LibTorch loop", [&] { return hand_written_loop(data); }},
                                          {"Trainer, 1 log", [&] { return trained_by_levin(data, 1, false); }},
                                          {"Trainer, 11 logs", [&] { return trained_by_levin(data, 11, false); }},
                                          {"Trainer, barebones", [&] { return trained_by_levin(data, 0, true); }}},
                                         kRounds);
  bench::print_table("MLP 784-64-10, batch 64, SGD, one thread", "us a step", figures);
  const auto per_log = bench::interleave({{"one log call", [&] { return log_call(data); }}}, 5);
  bench::print_table("\nin a training_step", "us", per_log);
  bench::write_json("overhead", "us a step", figures,
                    {{"trainer_to_loop", bench::ratio(figures[1], figures[0])}, {"us_per_log", per_log[0].median}});
}
