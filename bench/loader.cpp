// How fast samples come: one pass over 50,000 CIFAR-shaped samples, (3, 32, 32) uint8 in memory, in shuffled batches
// of 128, each sample transformed by itself to float32 of 0 to 1, with 0, 1 and 2 workers; by Levin's DataLoader, by
// torch::data and by Python's DataLoader (peers/loader.py). Workers are started before what is timed.
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <stdexcept>

#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"
#include "peer.h"
#include "rounds.h"

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

Contender levin_loader(const Images& images, int64_t workers) {
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

Contender torch_loader(const Images& images, int64_t workers) {
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

int run(const Options& options) {
  at::set_num_threads(1);
  const int64_t samples = options.quick ? 512 : 50'000;
  const auto images = make_images(samples);
  const auto peer = Peer::start("loader", {std::to_string(samples)});
  Report report("loader");
  if (peer != nullptr) report.peers(peer->versions());
  for (const int64_t workers : {0, 1, 2}) {
    const std::string count = std::to_string(workers);
    std::vector<Contender> contenders = {torch_loader(images, workers), levin_loader(images, workers)};
    if (peer != nullptr) contenders.push_back({"Python's DataLoader", [=] { return peer->round(count); }});
    const auto figures = interleave(contenders, options);
    report.table("samples of 3x32x32, " + count + " workers", "samples/s", figures);
    const auto to_torch = ratio(figures, "Levin", "torch::data");
    const auto to_python = ratio(figures, "Levin", "Python's DataLoader");
    if (workers < 2) {
      report.number("to_torch_data_" + count, to_torch);
      report.number("to_python_" + count, to_python);
    } else {
      report.at_least("to_torch_data_2", to_torch, 1.2);
      report.at_least("to_python_2", to_python, 6);
    }
  }
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 7);
  return guarded([&] { return run(options); });
}

}  // namespace bench::loader
