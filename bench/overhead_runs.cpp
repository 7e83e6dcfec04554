#include "overhead_runs.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "levin/levin.h"
#include "stopwatch.h"

namespace bench {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 64;

double microseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

nn::Sequential make_net() {
  torch::manual_seed(0);
  return nn::Sequential(nn::Linear(784, 64), nn::ReLU(), nn::Linear(64, 10));
}

template <class Optimizer>
double loop(const Data& data, Optimizer&& optimizer, nn::Sequential& net, Length length) {
  const int64_t batches = std::min((data.x.size(0) + kBatch - 1) / kBatch, length.batches);
  const auto start = Clock::now();
  for (int64_t epoch = 0; epoch < length.epochs; ++epoch) {
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
  return microseconds(start) / static_cast<double>(length.epochs * batches);
}

std::vector<std::string> metric_names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("metric_" + std::to_string(i));
  return names;
}

class Mlp : public levin::LightningModule {
 public:
  Mlp(Kind kind, int logs) : kind_(kind), names_(metric_names(logs)) { register_module("net", net_); }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto loss = F::cross_entropy(net_->forward(batch[0]), batch[1]);
    for (const auto& name : names_) log(name, loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    if (kind_ == Kind::sgd) return levin::SGD(parameters(), {.lr = 0.1});
    return levin::AdamW(parameters(), {.lr = 1e-3});
  }

 private:
  nn::Sequential net_ = make_net();
  Kind kind_;
  std::vector<std::string> names_;
};

class LogCost : public levin::LightningModule {
 public:
  LogCost() { register_module("net", net_); }
  // 200 calls a step, of ten metrics that are known from the batches before.
  torch::Tensor training_step(const levin::Batch& batch, int64_t batch_idx) override {
    auto loss = F::cross_entropy(net_->forward(batch[0]), batch[1]);
    const auto start = Clock::now();
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (const auto& name : names_) log(name, loss);
    }
    if (batch_idx > 0) total_ += microseconds(start);
    if (batch_idx > 0) calls_ += 200;
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.1}); }
  [[nodiscard]] double measurement() const { return total_ / static_cast<double>(calls_); }

 private:
  nn::Sequential net_ = make_net();
  std::vector<std::string> names_ = metric_names(10);
  double total_ = 0;
  int64_t calls_ = 0;
};

class Tiny : public levin::LightningModule {
 public:
  explicit Tiny(int logs) : names_(metric_names(logs)) { weight_ = register_parameter("weight", torch::ones({1})); }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto loss = (batch[0] * weight_).mean();
    for (const auto& name : names_) log(name, loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 1e-6}); }

 private:
  torch::Tensor weight_;
  std::vector<std::string> names_;
};

std::shared_ptr<levin::DataLoader> make_loader(std::vector<at::Tensor> tensors, bool shuffle) {
  return std::make_shared<levin::DataLoader>(std::make_shared<levin::TensorDataset>(std::move(tensors)),
                                             levin::DataLoaderOptions{.batch_size = kBatch, .shuffle = shuffle});
}

double fit(levin::LightningModule& model, const std::shared_ptr<levin::DataLoader>& loader,
           levin::TrainerOptions options) {
  const auto folder = std::filesystem::temp_directory_path() / "levin_bench_overhead";
  const bool alone = options.devices == decltype(options.devices)(int64_t{1});  // else other ranks may still write
  if (alone) std::filesystem::remove_all(folder);
  auto watch = std::make_shared<Stopwatch>();
  options.callbacks = {watch};
  options.default_root_dir = folder.string();
  levin::Trainer(std::move(options)).fit(model, loader);
  if (alone) std::filesystem::remove_all(folder);
  return watch->microseconds_a_step();
}

// (64 * steps) numbers, one batch a step in order: a batch is a view.
at::Tensor tiny_data(int64_t steps) {
  return torch::ones({kBatch * steps});
}

}  // namespace

Data load_fashion_mnist() {
  const std::string folder = levin::FashionMnist().folder() + "/";
  const auto images = levin::read_idx(folder + "train-images-idx3-ubyte.gz");
  const auto labels = levin::read_idx(folder + "train-labels-idx1-ubyte.gz");
  return {images.flatten(1).to(torch::kFloat) / 255, labels.to(torch::kLong)};
}

double hand_written_loop(const Data& data, Kind kind, Length length) {
  auto net = make_net();
  if (kind == Kind::sgd) return loop(data, torch::optim::SGD(net->parameters(), 0.1), net, length);
  return loop(data, torch::optim::AdamW(net->parameters(), 1e-3), net, length);
}

double trained_by_levin(const Data& data, Kind kind, int logs, Length length, bool barebones, int64_t ranks,
                        bool record) {
  Mlp model(kind, logs);
  return fit(model, make_loader({data.x, data.y}, true),
             {.max_epochs = length.epochs,
              .devices = ranks,
              .oversubscribe = true,
              .limit_train_batches = length.batches,
              .record_steps = record,
              .barebones = barebones});
}

double fabric_loop(const Data& data, Kind kind, Length length) {
  auto net = make_net();
  levin::Fabric fabric({.devices = int64_t{1}});
  if (kind == Kind::sgd) (void)fabric.setup(net, levin::SGD(net->parameters(), {.lr = 0.1}));
  if (kind == Kind::adamw) (void)fabric.setup(net, levin::AdamW(net->parameters(), {.lr = 1e-3}));
  auto loader = fabric.setup_dataloaders(make_loader({data.x, data.y}, true));
  const auto loss = [&](const levin::Batch& batch) { return F::cross_entropy(net->forward(batch[0]), batch[1]); };
  (void)fabric.autocast();  // sets up, which the Stopwatch of a fit leaves out too
  const auto start = Clock::now();
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < length.epochs; ++epoch) {
    int64_t left = length.batches;
    for (const levin::Batch& batch : loader.epoch(epoch)) {
      (void)fabric.step(batch, loss);
      ++steps;
      if (--left == 0) break;
    }
  }
  return microseconds(start) / static_cast<double>(steps);
}

double log_call(const Data& data, int64_t batches) {
  LogCost model;
  levin::Trainer trainer(levin::TrainerOptions{
      .max_epochs = 1, .limit_train_batches = batches, .logger = false, .enable_checkpointing = false});
  trainer.fit(model, make_loader({data.x, data.y}, true));
  return model.measurement();
}

double tiny_loop(int64_t steps) {
  const auto data = tiny_data(steps);
  auto weight = torch::ones({1}).requires_grad_();
  levin::SGD optimizer({weight}, {.lr = 1e-6});
  const auto start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    const auto x = data.narrow(0, step * kBatch, kBatch);
    optimizer.zero_grad();
    const auto loss = (x * weight).mean();
    loss.backward();
    optimizer.step();
  }
  return microseconds(start) / static_cast<double>(steps);
}

// Takes the values and drops them: what is left is the cost of handing them over.
struct Dropping final : levin::Logger {
  static const char* registry_name() { return "logger"; }
  void start(const std::string& /*root*/, bool /*resume*/) override {}
  void log_metrics(const levin::MetricList& /*metrics*/, const levin::LogPoint& /*at*/) override {}
};

double tiny_logging(int64_t steps, int logs, const std::vector<std::string>& loggers) {
  Tiny model(logs);
  levin::TrainerOptions options{.max_epochs = 1,
                                .devices = 1,
                                .log_every_n_steps = 1,
                                .logger = false,
                                .enable_checkpointing = false,
                                .enable_progress_bar = false};
  if (!loggers.empty()) {
    options.logger = levin::LoggerChoice();
    for (const std::string& name : loggers) {
      if (name == "dropping") {
        options.logger.loggers.push_back(Dropping());
      } else {
        options.logger.loggers.push_back(name);
      }
    }
  }
  return fit(model, make_loader({tiny_data(steps)}, false), std::move(options));
}

double tiny_trainer(int64_t steps, int logs) {
  Tiny model(logs);
  return fit(model, make_loader({tiny_data(steps)}, false),
             {.max_epochs = 1, .devices = 1, .enable_checkpointing = false});
}

}  // namespace bench
