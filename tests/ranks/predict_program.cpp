// Predicts with a network whose sums are rounded, and writes the predictions; predict_test.py runs it alone and with
// several ranks. Arguments: output, samples, batch, and
//   broken=N      every N-th sample cannot be read
//   lengths       batches by length, in an order of their own
//   loaders=2     a second loader with 5 samples; "joined": both as one
//   own_loader    a loader of a class of the user's own, which knows no ids
//   kill=R:B      rank R kills itself before its batch B; fail=R:B: it throws
//   interval=…    PredictionWriterOptions.write_interval
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "levin/levin.h"
#include "ranks/run_arguments.h"
#include "support/forked_runs.h"

namespace predict_program {
namespace {

using levin::test::RunArguments;

constexpr int64_t kInputs = 64;

class Network : public levin::LightningModule {
 public:
  explicit Network(RunArguments arguments) : arguments_(std::move(arguments)) {
    torch::manual_seed(1);
    layers_->push_back(torch::nn::Linear(kInputs, 48));
    layers_->push_back(torch::nn::Tanh());
    layers_->push_back(torch::nn::Linear(48, 3));
    register_module("layers", layers_);
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t batch_idx) override {
    const std::string here = std::to_string(global_rank()) + ":" + std::to_string(batch_idx);
    if (arguments_.text("kill", "") == here) std::raise(SIGKILL);
    if (arguments_.text("fail", "") == here) throw levin::Error("no prediction here");
    step_output("sum", batch[0].sum(1));
    step_output("count", torch::full({batch.size()}, 7));
    return layers_->forward(batch[0]);
  }

 private:
  RunArguments arguments_;
  torch::nn::Sequential layers_;
};

class Rows : public levin::Dataset {
 public:
  Rows(int64_t samples, int64_t broken) : samples_(samples), broken_(broken) {}

  int64_t size() const override { return samples_; }
  levin::Batch get(int64_t index) const override {
    if (broken_ > 0 && index % broken_ == broken_ - 1) {
      return levin::skipped_sample("row " + std::to_string(index) + ", \"damaged\"");
    }
    return {torch::sin(torch::arange(kInputs).to(torch::kFloat) * static_cast<double>(index + 1))};
  }
  std::string sample_id(int64_t index) const override {
    return "key " + std::to_string(index) + (index == 3 ? ",3" : "");
  }
  int64_t length(int64_t index) const override { return 1 + index * 7 % 11; }

 private:
  int64_t samples_;
  int64_t broken_;
};

// Hides what the loader knows about samples.
class Plain : public levin::WrappedLoader {
 public:
  using WrappedLoader::WrappedLoader;
  void identify_samples(bool) override {}
};

std::shared_ptr<levin::Loader> loader(const RunArguments& arguments, int64_t samples) {
  const auto rows = std::make_shared<Rows>(samples, arguments.number("broken", 0));
  return std::make_shared<levin::DataLoader>(rows,
                                             levin::DataLoaderOptions{.batch_size = arguments.number("batch", 4),
                                                                      .num_workers = arguments.number("workers", 0),
                                                                      .bucket_by_length = arguments.has("lengths")});
}

void predict(const RunArguments& arguments) {
  levin::TrainerOptions options;
  options.devices = arguments.number("devices", 1);
  options.oversubscribe = true;
  if (arguments.has("devices")) options.strategy = levin::DDP({.timeout = levin::Seconds(30)});
  options.logger = false;
  options.enable_progress_bar = options.enable_model_summary = options.enable_checkpointing = false;
  options.num_threads = 1;
  levin::PredictionWriterOptions written{.output = arguments.text("output", "p.csv")};
  if (arguments.text("interval", "batch") == "epoch") written.write_interval = levin::WriteInterval::epoch;
  const auto writer = std::make_shared<levin::PredictionWriter>(written);
  options.callbacks = {writer};
  levin::Trainer trainer(options);
  Network module(arguments);
  auto first = loader(arguments, arguments.number("samples", 30));
  if (arguments.has("own_loader")) first = std::make_shared<Plain>(first);
  levin::Loaders loaders(first);
  if (arguments.has("loaders")) loaders.push_back(loader(arguments, 5));
  if (arguments.has("joined")) {
    loaders = levin::CombinedLoader({loaders[0], loaders[1]}, {.mode = levin::CombinedMode::sequential});
  }
  (void)trainer.predict(module, loaders, {.return_predictions = false});
  if (trainer.is_global_zero()) {
    std::printf("%ld written, %ld skipped\n", static_cast<long>(writer->samples()),
                static_cast<long>(writer->skipped()));
  }
}

int run(const std::vector<std::string>& arguments) {
  return levin::test::status_of([&] { predict(RunArguments(arguments)); });
}

}  // namespace

int run_program(int argc, char** argv) {
  return levin::test::run_or_serve(argc, argv, run);
}

}  // namespace predict_program
