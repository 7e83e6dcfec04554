// Measures what the Trainer costs if a step is bound by the host's launches: MLP 784-64-10, batch 64, SGD, on a GPU.
// Hand-written: batches gathered on the CPU and copied from pinned memory while the GPU computes, LibTorch's SGD; the
// same captured as a CUDA graph; and by the Trainer without and with record_steps.
//
//   bench_overhead gpu [--rounds N] [--quick]
//   bench_overhead gpu dry      the same on the CPU with few steps, without graphs: shows that the program runs
#include "overhead_gpu.h"

#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "levin/core/gpu.h"
#include "levin/core/process/console.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/lightning_module.h"
#include "overhead_runs.h"
#include "steady_stopwatch.h"
#include "survivors.h"

namespace bench::overhead {

namespace {

constexpr int64_t kBatchSize = 64;
constexpr double kRate = 0.125;  // exact in float32, in which a graph reads it

torch::nn::Sequential make_mlp() {
  torch::manual_seed(0);
  return torch::nn::Sequential(torch::nn::Linear(784, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10));
}

struct Pair {
  at::Tensor x, y;
};

// Batches in a random order, on the device: the copy of one does not block the host.
class Source {
 public:
  Source(const Data& data, at::Device device) : data_(data), device_(device) {}
  Pair next() {
    if (at_ + kBatchSize > order_.size(0)) {
      order_ = torch::randperm(data_.x.size(0), torch::kLong);
      at_ = 0;
    }
    const auto indices = order_.narrow(0, at_, kBatchSize);
    at_ += kBatchSize;
    return {sent(data_.x.index_select(0, indices)), sent(data_.y.index_select(0, indices))};
  }

 private:
  [[nodiscard]] at::Tensor sent(const at::Tensor& tensor) const {
    if (device_.is_cpu()) return tensor;
    return tensor.pin_memory().to(device_, tensor.scalar_type(), /*non_blocking=*/true);
  }

  const Data& data_;
  at::Device device_;
  at::Tensor order_ = torch::empty({0}, torch::kLong);
  int64_t at_ = 0;
};

double microseconds_a_step(std::chrono::duration<double> time, int64_t steps) {
  return time.count() * 1e6 / static_cast<double>(steps);
}

double cuda_loop(const Data& data, int64_t steps, at::Device device) {
  auto net = make_mlp();
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), kRate);
  Source source(data, device);
  auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < kSkippedSteps + steps; ++step) {
    if (step == kSkippedSteps) start = time_when_done(device.is_cuda());
    const Pair batch = source.next();
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y).backward();
    optimizer.step();
  }
  return microseconds_a_step(time_when_done(device.is_cuda()) - start, steps);
}

// Forward, backward and update as one graph, which reads the batch from tensors of its own.
double cuda_graph_loop(const Data& data, int64_t steps, at::Device device) {
  auto net = make_mlp();
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), kRate);
  Source source(data, device);
  const Pair first = source.next();
  const at::Tensor x = first.x.clone(), y = first.y.clone();
  const auto step = [&] {
    torch::nn::functional::cross_entropy(net->forward(x), y).backward();
    optimizer.step();
  };
  const auto recorder = levin::open_gpu().make_recorder(device);
  for (int k = 0; k < 3; ++k) {
    optimizer.zero_grad();
    recorder->warm_up(step);
  }
  optimizer.zero_grad();  // the gradients are made within the graph, which writes them anew each time
  const auto graph = recorder->record(step);
  auto start = std::chrono::steady_clock::now();
  for (int64_t k = 0; k < kSkippedSteps + steps; ++k) {
    if (k == kSkippedSteps) start = time_when_done(/*gpu=*/true);
    const Pair batch = source.next();
    x.copy_(batch.x, /*non_blocking=*/true);
    y.copy_(batch.y, /*non_blocking=*/true);
    graph->replay();
  }
  return microseconds_a_step(time_when_done(/*gpu=*/true) - start, steps);
}

class GpuMlp : public levin::LightningModule {
 public:
  explicit GpuMlp(int logs) : logs_(logs) { register_module("net", net_); }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto loss = torch::nn::functional::cross_entropy(net_->forward(batch[0]), batch[1]);
    for (int k = 0; k < logs_; ++k) log("metric_" + std::to_string(k), loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = kRate}); }

 private:
  torch::nn::Sequential net_ = make_mlp();
  int logs_;
};

struct Way {
  int logs = 0;
  bool record_steps = false;
};

double by_trainer(const Data& data, int64_t steps, at::Device device, Way way) {
  const auto folder = std::filesystem::temp_directory_path() / "levin_bench_overhead_gpu";
  std::filesystem::remove_all(folder);
  GpuMlp model(way.logs);
  const auto watch = std::make_shared<SteadyStopwatch>(steps, device.is_cuda());
  levin::TrainerOptions options{.max_steps = kSkippedSteps + steps,
                                .accelerator = device.is_cuda() ? "gpu" : "cpu",
                                .devices = int64_t{1},
                                .callbacks = {watch},
                                .default_root_dir = folder.string(),
                                .record_steps = way.record_steps};
  levin::Trainer(std::move(options))
      .fit(model, std::make_shared<levin::DataLoader>(
                      std::make_shared<levin::TensorDataset>(std::vector<at::Tensor>{data.x, data.y}),
                      levin::DataLoaderOptions{.batch_size = kBatchSize, .shuffle = true, .drop_last = true}));
  std::filesystem::remove_all(folder);
  return watch->seconds_a_step() * 1e6;
}

}  // namespace

int run_on_gpu(const Options& options) {
  const bool dry = options.words.size() == 2 && options.words[1] == "dry";
  if (options.words.size() > 1 && !dry) throw std::runtime_error("usage: bench_overhead gpu [dry]");
  if (!dry) (void)levin::open_gpu();  // before LibTorch is asked for anything
  levin::Console::instance().capture([](const std::string&) {});
  const at::Device device = dry ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
  const int64_t steps = dry || options.quick ? 4 : 2000;
  const auto data = load_fashion_mnist();
  std::vector<Candidate> candidates = {
      {"hand-written CUDA loop", [&] { return cuda_loop(data, steps, device); }},
      {"Trainer, no log", [&] { return by_trainer(data, steps, device, {}); }},
      {"Trainer, 1 log", [&] { return by_trainer(data, steps, device, {.logs = 1}); }},
      {"Trainer, recorded", [&] { return by_trainer(data, steps, device, {.logs = 1, .record_steps = true}); }}};
  if (!dry) {
    candidates.push_back({"hand-written CUDA graph", [&] { return cuda_graph_loop(data, steps, device); }});
  }
  Report report("overhead_gpu");
  Failures failures;
  const auto measurements = failures.interleave_rest(candidates, options);
  report.table("MLP 784-64-10, batch 64, SGD, one GPU", "us a step", measurements);
  report.at_most("trainer_to_loop_no_log", ratio(measurements, "Trainer, no log", "hand-written CUDA loop"), 1);
  report.at_most("trainer_to_loop", ratio(measurements, "Trainer, 1 log", "hand-written CUDA loop"), 1);
  report.number("recorded_to_loop", ratio(measurements, "Trainer, recorded", "hand-written CUDA loop"));
  report.number("recorded_to_graph_loop", ratio(measurements, "Trainer, recorded", "hand-written CUDA graph"));
  report.write();
  failures.check();
  return 0;
}

}  // namespace bench::overhead
