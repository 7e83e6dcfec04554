// Finding a batch size: the result fits, and the search leaves no trace.
#include "levin/callbacks/batch_size_finder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/data/loading/dataloader.h"
#include "levin/loggers/csv_logger.h"
#include "levin/metrics/aggregation.h"
#include "levin/optim/adam.h"
#include "levin/optim/step_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "support/captured_console.h"
#include "support/limited_allocator.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::batch_size_finder_test {
namespace {

using namespace test;
namespace F = torch::nn::functional;

std::shared_ptr<DataLoader> shuffled(int64_t samples, int64_t batch_size) {
  torch::manual_seed(11);
  auto data =
      std::make_shared<TensorDataset>(std::vector<at::Tensor>{torch::rand({samples, 4}), torch::rand({samples, 1})});
  return std::make_shared<DataLoader>(data, DataLoaderOptions{.batch_size = batch_size, .shuffle = true, .seed = 5});
}

/// Random numbers, statistics, an optimizer with state: everything that a trial may change.
struct Net : LightningModule {
  explicit Net(int64_t width = 8, bool norm = true) {
    torch::manual_seed(3);
    net = register_module("net", torch::nn::Sequential(torch::nn::Linear(4, width)));
    if (norm) net->push_back(torch::nn::BatchNorm1d(width));
    net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Dropout(0.5));
    net->push_back(torch::nn::Linear(width, 1));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    sizes.push_back(batch.size());
    samples(static_cast<double>(batch.size()));
    log("samples", samples, {.on_step = true, .on_epoch = true});
    const at::Tensor loss = F::mse_loss(net->forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  OptimizerConfig configure_optimizers() override {
    ++asked;
    return {AdamW(parameters(), {.lr = 0.01}), StepLR({.step_size = 2})};
  }
  torch::nn::Sequential net{nullptr};
  std::vector<int64_t> sizes = {};
  metrics::SumMetric samples{};
  int asked = 0;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Left {
  std::vector<at::Tensor> tensors;
  std::string rows;  // what the loggers wrote
  Metrics metrics;
  int64_t steps = 0;
};

Left fit(Callbacks callbacks, std::shared_ptr<Loader> loader, const std::string& precision = "32-true") {
  const TemporaryFolder folder;
  Net net;
  torch::manual_seed(17);
  TrainerOptions options = quiet(2, std::move(callbacks), folder.path());
  options.logger = CSVLogger({.name = "log"});
  options.log_every_n_steps = 1;
  if (precision == "scaled") options.precision = MixedPrecision({.dtype = MixedDtype::float16});
  Trainer trainer(options);
  trainer.fit(net, std::move(loader));
  Left left;
  for (const auto& item : net.named_parameters()) left.tensors.push_back(item.value().detach().clone());
  for (const auto& item : net.named_buffers()) left.tensors.push_back(item.value().clone());
  for (const auto& [name, tensor] : trainer.optimizers()[0].optimizer().state_dict().tensors)
    left.tensors.push_back(tensor);
  left.tensors.push_back(torch::rand({4}));
  left.rows = text_of(trainer.log_dir() + "/metrics.csv");
  left.metrics = trainer.callback_metrics();
  left.steps = trainer.global_step();
  return left;
}

void expect_same_bits(const Left& a, const Left& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t k = 0; k < a.tensors.size(); ++k) EXPECT_TRUE(torch::equal(a.tensors[k], b.tensors[k])) << k;
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_FALSE(a.rows.empty());
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(a.steps, b.steps);
}

// max_val ends the search at the configured size, so that training continues as though there had been no search.
TEST(BatchSizeFinder, ThatKeepsTheConfiguredSizeLeavesNoTrace) {
  for (const std::string precision : {"32-true", "scaled"}) {
    const auto finder = std::make_shared<BatchSizeFinder>(BatchSizeFinderOptions{.max_val = 8});
    const Left with = fit({finder}, shuffled(40, 8), precision);
    EXPECT_EQ(finder->found(), 8);
    expect_same_bits(with, fit({}, shuffled(40, 8), precision));
    EXPECT_EQ(with.metrics.at("samples_epoch"), 40) << "samples of the search were counted";
  }
}

TEST(BatchSizeFinder, TrainsWithWhatItHasFound) {
  const auto finder = std::make_shared<BatchSizeFinder>(BatchSizeFinderOptions{.max_val = 16});
  const Left with = fit({finder}, shuffled(40, 8));
  EXPECT_EQ(finder->found(), 16);
  EXPECT_EQ(finder->configured(), 8);
  EXPECT_EQ(with.steps, 2 * 3);
  expect_same_bits(with, fit({}, shuffled(40, 16)));
}

TEST(BatchSizeFinder, StopsAtTheEndOfTheData) {
  for (const auto mode : {BatchSizeSearch::power, BatchSizeSearch::binsearch}) {
    const auto finder = std::make_shared<BatchSizeFinder>(BatchSizeFinderOptions{.mode = mode});
    CapturedConsole console;
    (void)fit({finder}, shuffled(40, 8));
    EXPECT_EQ(finder->found(), mode == BatchSizeSearch::power ? 32 : 40);
    EXPECT_TRUE(console.has("are more than there are. Batches have ")) << console.text();
  }
}

/// The largest batch of a wide net whose step stays under `limit`, by trying each.
int64_t search_with(size_t limit, BatchSizeFinderOptions options, std::string* output = nullptr) {
  options.steps_per_trial = 2;
  const auto finder = std::make_shared<BatchSizeFinder>(options);
  Net net(512, /*norm=*/false);  // which takes a batch of one sample too
  auto loader = shuffled(400, 8);
  Trainer trainer(quiet(
      1, {finder, LambdaCallback({.on_train_start = [](Trainer& t, LightningModule&) { t.request_stop("found"); }})}));
  CapturedConsole console;
  MemoryLimit memory;
  memory.set(limit);
  trainer.fit(net, loader);
  if (output != nullptr) *output = console.text();
  return finder->found().value_or(-1);
}

TEST(BatchSizeFinder, FindsWhatFitsIntoMemory) {
  constexpr size_t kLimit = 2000000;
  std::string output;
  const int64_t power = search_with(kLimit, {}, &output);
  EXPECT_TRUE(has(output, std::to_string(power) + " samples fit, " + std::to_string(2 * power) +
                              " samples run out of memory. Batches have " + std::to_string(power)))
      << output;
  const int64_t exact = search_with(kLimit, {.mode = BatchSizeSearch::binsearch, .margin = 0});
  EXPECT_GE(exact, power);
  EXPECT_LT(exact, 2 * power);
  // A search that may not look higher agrees, and one sample more does not fit.
  EXPECT_EQ(search_with(kLimit, {.init_val = exact, .max_val = exact}), exact);
  EXPECT_LT(search_with(kLimit, {.init_val = exact + 1, .max_trials = 2, .max_val = exact + 1}), exact + 1);
  const int64_t careful = search_with(kLimit, {.mode = BatchSizeSearch::binsearch, .margin = 0.25});
  EXPECT_EQ(careful, static_cast<int64_t>(0.75 * static_cast<double>(exact)));
}

TEST(BatchSizeFinder, HalvesAFirstSizeThatDoesNotFit) {
  EXPECT_EQ(search_with(2000000, {.init_val = 256}), search_with(2000000, {}));
}

TEST(BatchSizeFinder, OfOneSampleThatDoesNotFitIsReported) {
  EXPECT_TRUE(has(error_of([] { (void)search_with(50000, {.init_val = 4}); }),
                  "BatchSizeFinder: not even 1 sample of a batch fit into memory."));
}

TEST(BatchSizeFinder, AResumedRunContinuesWithTheResultWithoutSearching) {
  const TemporaryFolder folder;
  const std::string path = folder / "mid.ckpt";
  auto run = [&](const std::string& from, bool save) {
    Net net;
    auto finder = std::make_shared<BatchSizeFinder>(BatchSizeFinderOptions{.max_val = 16});
    Trainer trainer(
        quiet(2, {finder, LambdaCallback({.on_train_batch_end = [&](Trainer& t, LightningModule&, const at::Tensor&,
                                                                    const Batch&, int64_t idx) {
                    if (save && idx == 0 && t.current_epoch() == 0) t.save_checkpoint(path);
                  }})}));
    trainer.fit(net, shuffled(40, 8), {}, from);
    std::vector<at::Tensor> weights;
    for (const auto& p : net.parameters()) weights.push_back(p.detach().flatten().clone());
    return std::pair(torch::cat(weights), net.sizes);
  };
  const auto [undisturbed, all] = run("", true);
  const auto [resumed, rest] = run(path, false);
  EXPECT_EQ(rest, (std::vector<int64_t>{16, 8, 16, 16, 8}));
  EXPECT_TRUE(torch::equal(resumed, undisturbed));
}

TEST(BatchSizeFinder, ScalesLearningRatesIfAsked) {
  auto lr = [](LrScale scale) {
    Net net;
    TrainerOptions options = quiet(1, {std::make_shared<BatchSizeFinder>(BatchSizeFinderOptions{.max_val = 32})});
    options.lr_scale = scale;
    CapturedConsole console;
    Trainer trainer(options);
    trainer.fit(net, shuffled(40, 8));
    if (scale == LrScale::linear) {
      EXPECT_TRUE(
          console.has("lr_scale linear: an optimizer step takes 32 samples, 4 times the configured batch size of 8: "
                      "learning rates are multiplied by 4."))
          << console.text();
    }
    return trainer.optimizers()[0].optimizer().param_groups()[0].initial_lr;
  };
  EXPECT_DOUBLE_EQ(lr(LrScale::none), 0.01);
  EXPECT_DOUBLE_EQ(lr(LrScale::linear), 0.04);
  EXPECT_DOUBLE_EQ(lr(LrScale::sqrt), 0.02);
}

TEST(BatchSizeFinderErrors, SayWhatIsInTheWay) {
  auto refusal = [](const std::function<void(TrainerOptions&)>& change, std::shared_ptr<Loader> loader,
                    BatchSizeFinderOptions finder = {}) {
    Net net;
    TrainerOptions options = quiet(1, {std::make_shared<BatchSizeFinder>(finder)});
    if (change) change(options);
    return error_of([&] { Trainer(options).fit(net, std::move(loader)); });
  };
  EXPECT_TRUE(has(refusal([](TrainerOptions& o) { o.micro_batch_size = "auto"; }, shuffled(40, 8)),
                  "BatchSizeFinder: with micro_batch_size: auto every batch fits, in parts. Drop one of the two."));
  EXPECT_TRUE(has(refusal([](TrainerOptions& o) { o.limit_train_batches = int64_t{0}; }, shuffled(40, 8)),
                  "BatchSizeFinder: limit_train_batches is 0, so there are no batches to try."));
  EXPECT_TRUE(has(refusal(nullptr, shuffled(40, 8), {.init_val = 64}),
                  "BatchSizeFinderOptions.init_val: 64 samples are more than the training data have."));
  EXPECT_TRUE(
      has(refusal(nullptr, tiny_loader(40, 8)), "BatchSizeFinder: the training loader cannot change its batch"));
  struct Unsized : Loader {
    void start(int64_t, int64_t) override {}
    bool next(Batch&) override { return false; }
    [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }
  };
  EXPECT_TRUE(
      has(refusal(nullptr, std::make_shared<Unsized>()), "BatchSizeFinder: the training loader has no batch size"));
  EXPECT_TRUE(
      has(error_of([] { BatchSizeFinder({.init_val = 9, .max_val = 8}); }), "init_val: 9 is more than max_val, 8"));
  EXPECT_TRUE(has(error_of([] { BatchSizeFinder({.init_val = 0}); }), "BatchSizeFinderOptions.init_val: must be >= 1"));
  EXPECT_TRUE(has(error_of([] { BatchSizeFinder({.margin = 1}); }), "BatchSizeFinderOptions.margin: must be < 1"));
}

TEST(BatchSizeFinderErrors, TellAStageWithoutTraining) {
  TinyModule module;
  Trainer trainer(quiet(1, {BatchSizeFinder({.max_val = 8})}));
  EXPECT_TRUE(has(error_of([&] { (void)trainer.validate(module, Loaders(shuffled(40, 8))); }),
                  "BatchSizeFinder: it runs training steps, and this stage does not train."));
  EXPECT_TRUE(has(error_of([&] { (void)trainer.predict(module, Loaders(shuffled(40, 8))); }), "BatchSizeFinder: "));
  trainer.fit(module, shuffled(40, 8));
  EXPECT_NO_THROW((void)trainer.test(module, Loaders(shuffled(40, 8))));
}

TEST(BatchSizeFinder, PassesOnAnErrorAndPutsTheModuleBack) {
  struct Fails : Net {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      if (batch.size() == 4) throw Error("of my own");
      return Net::training_step(batch, batch_idx);
    }
  };
  Fails net;
  const at::Tensor before = net.parameters()[0].detach().clone();
  Trainer trainer(quiet(1, {BatchSizeFinder({.max_val = 8})}));
  EXPECT_EQ(error_of([&] { trainer.fit(net, shuffled(40, 8)); }), "on_fit_start: of my own");
  EXPECT_EQ(net.sizes, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_TRUE(torch::equal(net.parameters()[0], before));
}

// Takes its own batch size back but once.
struct Stubborn final : Loader {
  explicit Stubborn(std::shared_ptr<DataLoader> loader) : inner(std::move(loader)) {}
  void start(int64_t epoch, int64_t first) override { inner->start(epoch, first); }
  bool next(Batch& batch) override { return inner->next(batch); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return inner->num_batches(); }
  [[nodiscard]] std::optional<int64_t> batch_size() const override { return inner->batch_size(); }
  bool set_batch_size(int64_t samples) override {
    if (samples == 4 && ++returns > 1) throw Error("Stubborn: it stays unchanged");
    return inner->set_batch_size(samples);
  }
  std::shared_ptr<DataLoader> inner;
  int returns = 0;
};

TEST(BatchSizeFinder, AFitDoesNotContinueIfTheRunCouldNotBeRestored) {
  const CapturedConsole console;
  Net net;
  auto loader = std::make_shared<Stubborn>(shuffled(32, 4));
  const std::string error = error_of([&] { Trainer(quiet(1, {BatchSizeFinder({.max_val = 8})})).fit(net, loader); });
  EXPECT_TRUE(has(error, "it stays unchanged")) << error;
}

}  // namespace
}  // namespace levin::batch_size_finder_test
