// Fabric.save and load: a loop that was killed continues as if it had not been, bitwise.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/data/loading/dataloader.h"
#include "levin/optim/adam.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/fabric.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "trainer/fabric_net.h"

namespace levin::fabric_checkpoint_test {
namespace {

using namespace test;

constexpr int64_t kEpochs = 3;

struct Outcome {
  std::vector<at::Tensor> weights = {};
  double total = 0;  // the loop's own value
  int64_t epoch = 0;
};

// A loop of three epochs of 7 batches with dropout and shuffled samples.
struct Loop {
  FabricOptions options = {};
  bool by_steps = true;
  std::string load_from = "";                          // "": from the start
  std::string save_to = "";                            // with `killed_after`
  std::optional<int64_t> killed_after = std::nullopt;  // batches of this process

  Outcome run();

 private:
  void train(Fabric& fabric, FabricOptimizer& optimizer, FabricNet& net, const Batch& batch, int64_t k) const;
};

DataLoader shuffled() {
  const at::Tensor x = torch::linspace(-1, 1, 28 * 4).view({28, 4}), y = torch::linspace(0, 1, 28).view({28, 1});
  return DataLoader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{x, y}),
                    {.batch_size = 4, .shuffle = true, .seed = 3});
}

// A loop with backward() accumulates the gradients of two batches; a checkpoint may hold the first batch's gradients.
void Loop::train(Fabric& fabric, FabricOptimizer& optimizer, FabricNet& net, const Batch& batch, int64_t k) const {
  if (by_steps) {
    (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
    return;
  }
  if (k % 2 == 0) optimizer.zero_grad();
  at::Tensor loss;
  {
    const auto autocast = fabric.autocast();
    loss = net.loss(batch);
  }
  fabric.backward(loss);
  if (k % 2 == 1) optimizer.step();
}

Outcome Loop::run() {
  torch::manual_seed(load_from.empty() ? 7 : 99);  // a new process has other numbers
  FabricNet net(/*dropout=*/0.5);
  if (!load_from.empty()) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net.parameters()) parameter.zero_();
  }
  options.num_threads = 1;
  Fabric fabric(options);
  OptimizerConfig config(AdamW(net.parameters(), {.lr = 0.05}), StepLR({.step_size = 1, .gamma = 0.7}));
  FabricOptimizer optimizer = fabric.setup(net, config);
  FabricLoader loader = fabric.setup_dataloaders(shuffled());
  Outcome outcome;
  int64_t k = 0;  // batches over all epochs
  if (!load_from.empty()) {
    const State user = fabric.load(load_from);
    outcome.total = user.get<double>("total");
    k = user.get<int64_t>("batches");
  }
  int64_t here = 0;
  for (int64_t epoch = fabric.current_epoch(); epoch < kEpochs; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      train(fabric, optimizer, net, batch, k);
      outcome.total += batch[1].sum().item<double>() * static_cast<double>(++k);
      if (killed_after != ++here) continue;
      State user;
      user.set("total", outcome.total);
      user.set("batches", k);
      fabric.save(save_to, user);
      outcome.epoch = fabric.current_epoch();
      return outcome;
    }
  }
  for (const at::Tensor& parameter : net.parameters()) outcome.weights.push_back(parameter.detach().clone());
  return outcome;
}

void expect_same_after_a_kill(const FabricOptions& options, bool by_steps, int64_t killed_after) {
  const TemporaryFolder folder;
  const std::string path = folder / "killed.ckpt";
  const Outcome whole = Loop{.options = options, .by_steps = by_steps}.run();
  (void)Loop{.options = options, .by_steps = by_steps, .save_to = path, .killed_after = killed_after}.run();
  const Outcome resumed = Loop{.options = options, .by_steps = by_steps, .load_from = path}.run();
  EXPECT_EQ(resumed.total, whole.total) << "killed after " << killed_after;
  expect_equal_weights(resumed.weights, whole.weights);
}

TEST(FabricCheckpoint, ALoopOfStepsContinuesInsideAnEpoch) {
  expect_same_after_a_kill({}, /*by_steps=*/true, 10);
}

TEST(FabricCheckpoint, AnUnfinishedOptimizerStepIsContinued) {
  const FabricOptions options{.accumulate_grad_batches = 4};
  for (const int64_t batches : {9, 10, 11, 13}) expect_same_after_a_kill(options, /*by_steps=*/true, batches);
}

TEST(FabricCheckpoint, ALoopContinuesAfterTheLastBatchOfAnEpoch) {
  expect_same_after_a_kill({}, /*by_steps=*/true, 7);
  expect_same_after_a_kill({.accumulate_grad_batches = 4}, /*by_steps=*/true, 14);
}

TEST(FabricCheckpoint, GradientsOfBackwardAreContinued) {
  expect_same_after_a_kill({}, /*by_steps=*/false, 9);   // one batch was accumulated
  expect_same_after_a_kill({}, /*by_steps=*/false, 10);  // none
}

TEST(FabricCheckpoint, TheLossScaleIsContinued) {
  const auto scaled = [] { return FabricOptions{.precision = MixedPrecision({.dtype = MixedDtype::float16})}; };
  const TemporaryFolder folder;
  const std::string path = folder / "scaled.ckpt";
  const Outcome whole = Loop{.options = scaled()}.run();
  (void)Loop{.options = scaled(), .save_to = path, .killed_after = 9}.run();
  expect_equal_weights(Loop{.options = scaled(), .load_from = path}.run().weights, whole.weights);
}

// Trains, loads an earlier checkpoint into the same process, and trains on.
std::vector<at::Tensor> weights_after_going_back(const FabricOptions& options, const std::string& path) {
  torch::manual_seed(99);
  FabricNet net(/*dropout=*/0.5);
  Fabric fabric(options);
  (void)fabric.setup(net,
                     OptimizerConfig(AdamW(net.parameters(), {.lr = 0.05}), StepLR({.step_size = 1, .gamma = 0.7})));
  FabricLoader loader = fabric.setup_dataloaders(shuffled());
  const auto train = [&](int64_t most) {
    for (int64_t epoch = fabric.current_epoch(); epoch < kEpochs; ++epoch) {
      for (const Batch& batch : loader.epoch(epoch)) {
        (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
        if (--most == 0) return;
      }
    }
  };
  train(17);  // with a window of 2, one batch of an optimizer step
  (void)fabric.load(path);
  train(kEpochs * 7);
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : net.parameters()) weights.push_back(parameter.detach().clone());
  return weights;
}

TEST(FabricCheckpoint, LoadedAfterStepsGivesTheWeightsOfANewProcess) {
  for (const bool records : {false, true}) {
    for (const int64_t accumulate : {1, 2}) {
      SCOPED_TRACE((records ? "recorded, " : "eager, ") + std::to_string(accumulate));
      const FabricOptions options{.accumulate_grad_batches = accumulate, .record_steps = records, .num_threads = 1};
      const TemporaryFolder folder;
      const std::string path = folder / "killed.ckpt";
      const Outcome whole = Loop{.options = options}.run();
      (void)Loop{.options = options, .save_to = path, .killed_after = 10}.run();
      expect_equal_weights(weights_after_going_back(options, path), whole.weights);
    }
  }
}

TEST(FabricCheckpoint, TheEpochToContinueWithIsTheRunningOne) {
  const TemporaryFolder folder;
  EXPECT_EQ((Loop{.save_to = folder / "a.ckpt", .killed_after = 10}.run().epoch), 1);
  EXPECT_EQ((Loop{.by_steps = false, .save_to = folder / "b.ckpt", .killed_after = 10}.run().epoch), 1);
}

TEST(FabricCheckpoint, WeightsHaveTheNamesOfSetup) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric;
  (void)fabric.setup(net, {}, "net");
  fabric.save(folder / "named.ckpt");
  EXPECT_TRUE(read_checkpoint(folder / "named.ckpt").tensors.contains("model.net.layers.0.weight"));
}

// Returns the checkpoint of a loop that was killed after its 10th batch, in epoch 1.
std::string save_killed_loop(const TemporaryFolder& folder) {
  const std::string path = folder / "saved.ckpt";
  (void)Loop{.save_to = path, .killed_after = 10}.run();
  return path;
}

TEST(FabricCheckpoint, RefusesADifferentSetUp) {
  const TemporaryFolder folder;
  const std::string path = save_killed_loop(folder);
  FabricNet net;
  Fabric fabric;
  (void)fabric.setup(net, AdamW(net.parameters()));
  expect_parts(error_of<CheckpointError>([&] { (void)fabric.load(path); }),
               {"Fabric.load: ", path, "positions of 1 loader, and 0 were set up", "setup_dataloaders"});
  FabricNet other_net;
  Fabric other;
  (void)other.setup(other_net, AdamW(other_net.parameters()), "other");
  (void)other.setup_dataloaders(shuffled());
  expect_parts(error_of<CheckpointError>([&] { (void)other.load(path); }), {"Fabric.load: ", "other.layers.0.weight"});
  expect_parts(error_of<CheckpointError>([&] { (void)fabric.load(folder / "none.ckpt"); }),
               {"Fabric.load: ", "none.ckpt"});
}

// A set-up that has loaded the checkpoint of a killed loop.
struct LoadedLoop {
  LoadedLoop() { (void)fabric.load(path); }

  TemporaryFolder folder;
  std::string path = save_killed_loop(folder);
  FabricNet net;
  Fabric fabric;
  FabricOptimizer optimizer =
      fabric.setup(net, OptimizerConfig(AdamW(net.parameters(), {.lr = 0.05}), StepLR({.step_size = 1})));
  FabricLoader loader = fabric.setup_dataloaders(shuffled());
};

TEST(FabricCheckpoint, ContinuesOnlyInTheEpochThatWasSaved) {
  LoadedLoop loaded;
  expect_parts(error_of<Error>([&] { (void)loaded.loader.epoch(0); }),
               {"FabricLoader.epoch: ", "saved in epoch 1", "epoch 0 was asked for", "current_epoch()"});
}

TEST(FabricCheckpoint, APassIsNotContinuedWithOtherBatches) {
  const TemporaryFolder folder;
  const auto loader_of = [](int64_t batch_size, int64_t rows) {
    return DataLoader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{torch::ones({rows, 4})}),
                      {.batch_size = batch_size});
  };
  const auto save = [&](int64_t batches, const std::string& path) {
    FabricNet net;
    Fabric fabric;
    (void)fabric.setup(net);
    auto [first, second] = fabric.setup_dataloaders(loader_of(4, 40), loader_of(4, 80));
    for (const Batch& batch : first.epoch(0)) {
      (void)batch;
      if (--batches == 0) fabric.save(path);
    }
    if (batches > 0) fabric.save(path);  // between two passes
  };
  const auto load = [&](const std::string& path, DataLoader first, DataLoader second) {
    FabricNet net;
    Fabric fabric;
    (void)fabric.setup(net);
    (void)fabric.setup_dataloaders(std::move(first), std::move(second));
    return error_of<CheckpointError>([&] { (void)fabric.load(path); });
  };
  save(2, folder / "inside.ckpt");
  save(99, folder / "between.ckpt");
  EXPECT_EQ(load(folder / "inside.ckpt", loader_of(4, 40), loader_of(8, 80)), "");
  EXPECT_EQ(load(folder / "between.ckpt", loader_of(8, 40), loader_of(8, 80)), "");
  expect_parts(load(folder / "inside.ckpt", loader_of(8, 40), loader_of(4, 80)),
               {"Fabric.load: ", "inside.ckpt", "loader 0, which had 10 batches of 4 samples", "now has 5 batches of 8",
                "in their order"});
  expect_parts(load(folder / "inside.ckpt", loader_of(4, 80), loader_of(4, 40)), {"now has 20 batches of 4 samples"});
}

// `save` takes no list: nothing that was set up can be left out.
TEST(FabricCheckpoint, HoldsEverySchedulerAndLoader) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric;
  OptimizerConfig config(AdamW(net.parameters(), {.lr = 0.05}), StepLR({.step_size = 1}));
  (void)fabric.setup(net, config);
  auto [train, val] = fabric.setup_dataloaders(shuffled(), shuffled());
  EXPECT_EQ(train.num_batches(), 7);
  EXPECT_EQ(val.num_batches(), 7);
  fabric.save(folder / "all.ckpt");
  const State saved = read_checkpoint(folder / "all.ckpt");
  EXPECT_EQ(saved.part("fabric").get<int64_t>("loaders"), 2);
  EXPECT_FALSE(saved.part("lr_schedulers.0").empty());
}

TEST(FabricCheckpoint, ALoaderDoesNotReplaceTheOneThatIsToBeContinued) {
  LoadedLoop loaded;
  expect_parts(error_of<Error>([&] { (void)loaded.fabric.setup_dataloaders(shuffled()); }),
               {"Fabric.setup_dataloaders: ", "continues inside a pass", "before load"});
  int64_t left = 0;
  for (const Batch& batch : loaded.loader.epoch(1)) left += batch.size() > 0 ? 1 : 0;
  EXPECT_EQ(left, 4);  // 7 batches, of which 3 were done
  (void)loaded.fabric.setup_dataloaders(shuffled());
}

TEST(FabricCheckpoint, IsNotLoadedInsideAPass) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric;
  (void)fabric.setup(net);
  FabricLoader loader = fabric.setup_dataloaders(shuffled());
  fabric.save(folder / "a.ckpt");
  for (const Batch& batch : loader.epoch(0)) {
    (void)batch;
    expect_parts(error_of<Error>([&] { (void)fabric.load(folder / "a.ckpt"); }),
                 {"Fabric.load: a pass over a loader is open"});
    expect_parts(error_of<Error>([&] { (void)loader.epoch(1); }), {"FabricLoader.epoch: a pass over this loader"});
    break;
  }
}

}  // namespace
}  // namespace levin::fabric_checkpoint_test
