// Measures loading of samples: one pass over 50,000 CIFAR-shaped samples, (3, 32, 32) uint8 in memory, in shuffled
// batches of 128, each sample transformed by itself to float32 of 0 to 1, with 0, 1 and 2 workers; by Levin's
// DataLoader, by torch::data and by Python's DataLoader (peers/loader.py). Workers are started before what is timed.
//
//   bench_loader [--rounds N] [--quick]
//   bench_loader gpu          steps of a convolutional network on a GPU with those samples, and with one batch that is
//                             there already: what loading adds to a step
//   bench_loader gpu dry      the same on the CPU with a tiny network: shows that the program runs
#include <torch/torch.h>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "levin/core/gpu.h"
#include "levin/core/process/console.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/lightning_module.h"
#include "one_batch.h"
#include "peer.h"
#include "rounds.h"
#include "steady_stopwatch.h"
#include "survivors.h"

namespace bench::loader {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 128;

struct Images {
  at::Tensor images;  // (samples, 3, 32, 32) uint8
  at::Tensor labels;  // (samples) int64

  [[nodiscard]] at::Tensor transformed(int64_t index) const { return images.select(0, index).to(at::kFloat).div_(255); }
};

Images make_images(int64_t count) {
  torch::manual_seed(0);
  return {torch::randint(0, 256, {count, 3, 32, 32}, torch::kByte), torch::randint(0, 10, {count}, torch::kLong)};
}

class LevinImages : public levin::Dataset {
 public:
  explicit LevinImages(Images images) : images_(std::move(images)) {}
  [[nodiscard]] int64_t size() const override { return images_.labels.size(0); }
  [[nodiscard]] levin::Batch get(int64_t index) const override {
    return {images_.transformed(index), images_.labels.select(0, index)};
  }

 private:
  Images images_;
};

class TorchImages : public torch::data::Dataset<TorchImages> {
 public:
  explicit TorchImages(Images images) : images_(std::move(images)) {}
  torch::optional<size_t> size() const override { return static_cast<size_t>(images_.labels.size(0)); }
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {images_.transformed(i), images_.labels.select(0, i)};
  }

 private:
  Images images_;
};

double rate(int64_t seen, int64_t wanted, Clock::time_point start) {
  if (seen != wanted) throw std::runtime_error("a pass gave " + std::to_string(seen) + " samples");
  return static_cast<double>(seen) / std::chrono::duration<double>(Clock::now() - start).count();
}

Candidate levin_loader(const Images& images, int64_t workers) {
  auto loader = std::make_shared<levin::DataLoader>(
      std::make_shared<LevinImages>(images),
      levin::DataLoaderOptions{.batch_size = kBatch, .shuffle = true, .num_workers = workers});
  return {"Levin", [loader, wanted = images.labels.size(0), epoch = int64_t{0}]() mutable {
            const auto start = Clock::now();
            int64_t seen = 0;
            loader->start(epoch++);
            for (levin::Batch batch; loader->next(batch);) seen += batch[0].size(0);
            return rate(seen, wanted, start);
          }};
}

Candidate torch_loader(const Images& images, int64_t workers) {
  namespace data = torch::data;
  auto dataset = TorchImages(images).map(data::transforms::Stack<>());
  const auto options = data::DataLoaderOptions().batch_size(kBatch).workers(static_cast<size_t>(workers));
  // std::function copies what it holds, and a loader cannot be copied.
  auto loader = std::shared_ptr(data::make_data_loader<data::samplers::RandomSampler>(std::move(dataset), options));
  return {"torch::data", [loader, wanted = images.labels.size(0)] {
            const auto start = Clock::now();
            int64_t seen = 0;
            for (auto& batch : *loader) seen += batch.data.size(0);
            return rate(seen, wanted, start);
          }};
}

class Convolutions : public levin::LightningModule {
 public:
  explicit Convolutions(int64_t width) {
    for (const auto& [in, out, stride] :
         {std::array{int64_t{3}, width, int64_t{1}}, {width, 2 * width, 1}, {2 * width, 4 * width, 2}}) {
      net_->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1)));
      net_->push_back(torch::nn::BatchNorm2d(out));
      net_->push_back(torch::nn::ReLU());
    }
    net_->push_back(torch::nn::AdaptiveAvgPool2d(1));
    net_->push_back(torch::nn::Flatten());
    net_->push_back(torch::nn::Linear(4 * width, 10));
    register_module("net", net_);
  }
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return torch::nn::functional::cross_entropy(net_->forward(batch[0]), batch[1]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 0.01}); }

 private:
  torch::nn::Sequential net_;
};

// Milliseconds a step.
double step_time(const std::shared_ptr<levin::Loader>& loader, int64_t steps, bool gpu) {
  torch::manual_seed(0);
  Convolutions model(gpu ? 128 : 2);
  const auto watch = std::make_shared<SteadyStopwatch>(steps, gpu);
  levin::TrainerOptions options{.max_steps = kSkippedSteps + steps,
                                .accelerator = gpu ? "gpu" : "cpu",
                                .devices = int64_t{1},
                                .logger = false,
                                .callbacks = {watch},
                                .enable_checkpointing = false};
  if (gpu) options.precision = "bf16-mixed";
  levin::Trainer(std::move(options)).fit(model, loader);
  return watch->seconds_a_step() * 1e3;
}

int run_on_gpu(const Options& options) {
  const bool dry = options.words.size() == 2 && options.words[1] == "dry";
  if (options.words[0] != "gpu" || (options.words.size() > 1 && !dry)) {
    throw std::runtime_error("usage: bench_loader [gpu [dry]]");
  }
  if (!dry) (void)levin::open_gpu();  // before LibTorch is asked for anything
  levin::Console::instance().capture([](const std::string&) {});
  const at::Device device = dry ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
  const int64_t steps = dry ? 1 : options.quick ? 8 : 300;
  const auto images = make_images(dry ? 16 * kBatch : 50'000);
  const auto samples = std::make_shared<LevinImages>(images);
  const auto first = levin::Batch{images.images.narrow(0, 0, kBatch).to(device).to(at::kFloat).div_(255),
                                  images.labels.narrow(0, 0, kBatch).to(device)};
  std::vector<Candidate> candidates = {
      {"one batch, on the device", [&] { return step_time(std::make_shared<OneBatch>(first), steps, !dry); }}};
  for (const int64_t workers : {0, 2, 4, 8}) {
    if (dry && workers > 2) continue;
    const levin::DataLoaderOptions wanted{
        .batch_size = kBatch, .shuffle = true, .drop_last = true, .num_workers = workers};
    candidates.push_back({"DataLoader, " + std::to_string(workers) + " workers", [&, wanted] {
                            return step_time(std::make_shared<levin::DataLoader>(samples, wanted), steps, !dry);
                          }});
  }
  Report report("loader_gpu");
  Failures failures;
  const auto measurements = failures.interleave_rest(candidates, options);
  report.table("a step with 128 samples of 3x32x32", "ms", measurements);
  for (size_t k = 1; k < candidates.size(); ++k) {
    const std::string& name = candidates[k].name;
    report.number("real_to_synthetic of " + name, ratio(measurements, name, candidates[0].name));
  }
  report.write();
  failures.check();
  return 0;
}

int run(const Options& options) {
  if (!options.words.empty()) return run_on_gpu(options);
  at::set_num_threads(1);
  const int64_t samples = options.quick ? 512 : 50'000;
  const auto images = make_images(samples);
  const auto peer = Peer::start("loader", {std::to_string(samples)});
  Report report("loader");
  Failures failures;
  if (peer != nullptr) report.peers(peer->versions());
  for (const int64_t workers : {0, 1, 2}) {
    const std::string count = std::to_string(workers);
    std::vector<Candidate> candidates = {torch_loader(images, workers), levin_loader(images, workers)};
    if (peer != nullptr) candidates.push_back({"Python's DataLoader", [=] { return peer->round(count); }});
    const auto measurements = failures.interleave_rest(candidates, options);
    report.table("samples of 3x32x32, " + count + " workers", "samples/s", measurements);
    const auto to_torch = ratio(measurements, "Levin", "torch::data");
    const auto to_python = ratio(measurements, "Levin", "Python's DataLoader");
    if (workers < 2) {
      report.number("to_torch_data_" + count, to_torch);
      report.number("to_python_" + count, to_python);
    } else {
      report.at_least("to_torch_data_2", to_torch, 1.2);
      report.at_least("to_python_2", to_python, 6);
    }
  }
  report.write();
  failures.check();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 7);
  return guarded([&] { return run(options); });
}

}  // namespace bench::loader
