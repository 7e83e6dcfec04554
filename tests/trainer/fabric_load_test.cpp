// Fabric.load: into a run that has steps already, and of files that do not fit; and which batches a save counts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>

#include "levin/callbacks/weight_averaging.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "levin/data/loading/dataloader.h"
#include "levin/optim/adam.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/trainer/fabric.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "trainer/fabric_net.h"

namespace levin::fabric_load_test {
namespace {

using namespace test;

TEST(FabricLoad, AnEpochEndsAfterLoadAsItWouldHave) {
  const TemporaryFolder folder;
  const std::string path = folder / "window.ckpt";
  const FabricOptions options{.accumulate_grad_batches = 4, .num_threads = 1};
  const auto configure = [](FabricNet& net) -> OptimizerConfig {
    return {
        AdamW(net.parameters(), {.lr = 0.1}), StepLR({.step_size = 1, .gamma = 0.5}), {.interval = Interval::epoch}};
  };
  std::vector<at::Tensor> weights[2];
  for (const bool resumes : {false, true}) {
    FabricNet net;
    Fabric fabric(options);
    FabricOptimizer optimizer = fabric.setup(net, configure(net));
    const auto step = [&] { (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); }); };
    if (resumes) {
      (void)fabric.load(path);
    } else {
      step();
      fabric.save(path);
    }
    fabric.end_epoch();
    EXPECT_EQ(fabric.global_step(), 1);
    step();
    fabric.end_epoch();
    EXPECT_EQ(fabric.global_step(), 2);
    EXPECT_EQ(optimizer.optimizer().param_groups()[0].lr, 0.025);
    weights[resumes] = net.parameters();
  }
  expect_equal_weights(weights[1], weights[0]);
}

TEST(FabricLoad, AValueThatIsLoggedAfterLoadMovesItsSchedule) {
  const TemporaryFolder folder;
  const std::string path = folder / "plateau.ckpt";
  for (const bool resumes : {false, true}) {
    FabricNet net;
    Fabric fabric({.num_threads = 1});
    FabricOptimizer optimizer = fabric.setup(
        net,
        {SGD(net.parameters(), {.lr = 1.0}), ReduceLROnPlateau({.factor = 0.5, .patience = 0}), {.monitor = "score"}});
    if (resumes) {
      (void)fabric.load(path);
    } else {
      (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
      fabric.log("score", 1.0);
      fabric.save(path);
    }
    fabric.log("score", 2.0);
    EXPECT_EQ(optimizer.optimizer().param_groups()[0].lr, 0.5) << resumes;
  }
}

OptimizerConfig sgd(FabricNet& net) {
  return SGD(net.parameters(), {.lr = 0.1, .momentum = 0.9});
}

void step_on(Fabric& fabric, FabricNet& net) {
  (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch); });
}

// A file of one step with SGD and without schedules.
std::string save_one_step(const TemporaryFolder& folder) {
  FabricNet net;
  Fabric fabric;
  (void)fabric.setup(net, sgd(net));
  step_on(fabric, net);
  fabric.save(folder / "one.ckpt");
  return folder / "one.ckpt";
}

// ---- load after steps -----------------------------------------------------------------------------------------------

TEST(FabricLoad, LoadRemovesTheFilesOfALoopThatWasKilledWhileItSaved) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric({.num_threads = 1});
  (void)fabric.setup(net, sgd(net));
  fabric.save(folder / "a.ckpt");
  const std::string abandoned = temporary_name(folder / "a.ckpt"), written = temporary_name(folder / "b.ckpt");
  (void)LockedFile::create(abandoned);  // its writer's lock ends here
  const LockedFile writer = LockedFile::create(written);
  (void)fabric.load(folder / "a.ckpt");
  EXPECT_FALSE(std::filesystem::exists(abandoned));
  EXPECT_TRUE(std::filesystem::exists(written));
  EXPECT_TRUE(std::filesystem::exists(folder / "a.ckpt"));
}

TEST(FabricLoad, LoadDropsGradientsThatWaitForAnOptimizerStep) {
  const TemporaryFolder folder;
  for (const bool by_steps : {true, false}) {
    FabricNet loaded, fresh;
    for (FabricNet* net : {&loaded, &fresh}) {
      Fabric fabric({.accumulate_grad_batches = by_steps ? 2 : 1, .num_threads = 1});
      FabricOptimizer optimizer = fabric.setup(*net, sgd(*net));
      const auto backward = [&](double factor) {
        const auto autocast = fabric.autocast();
        fabric.backward(net->loss(fixed_batch()) * factor);
      };
      if (net == &loaded) {
        fabric.save(folder / "start.ckpt");
        by_steps ? step_on(fabric, *net) : backward(3);
      }
      (void)fabric.load(folder / "start.ckpt");
      for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
      if (by_steps) {
        step_on(fabric, *net);
        EXPECT_EQ(fabric.global_step(), 0);  // the first batch of two
      }
      by_steps ? step_on(fabric, *net) : backward(1);
      if (!by_steps) optimizer.step();
      EXPECT_EQ(fabric.global_step(), 1);
    }
    expect_equal_weights(loaded.parameters(), fresh.parameters());
  }
}

// Returns the average in the file after three steps; the file of `saved_after` steps is loaded after the first `done`.
std::map<std::string, at::Tensor> average_of_three_steps(int64_t saved_after, int64_t done) {
  const TemporaryFolder folder;
  FabricNet net;
  Fabric fabric({.callbacks = {EMAWeightAveraging({.decay = 0.5})}});
  (void)fabric.setup(net, sgd(net));
  for (const char* hook : {"setup", "on_fit_start", "on_train_start"}) fabric.call(hook);
  const auto save_if_due = [&] {
    if (fabric.global_step() == saved_after) fabric.save(folder / "saved.ckpt");
  };
  const auto train_until = [&](int64_t step) {
    while (fabric.global_step() < step) {
      step_on(fabric, net);
      fabric.call("on_train_batch_end", torch::zeros({}), fixed_batch(), 0);
      save_if_due();
    }
  };
  save_if_due();
  train_until(done);
  if (done > 0) (void)fabric.load(folder / "saved.ckpt");
  train_until(3);
  fabric.save(folder / "last.ckpt");
  return read_checkpoint(folder / "last.ckpt").part("model").tensors;
}

TEST(FabricLoad, LoadRestoresAnAverageOfWeightsAlsoAfterSteps) {
  const auto whole = average_of_three_steps(0, 0);
  for (const int64_t saved_after : {0, 1}) {
    const auto again = average_of_three_steps(saved_after, 2);
    ASSERT_EQ(again.size(), whole.size());
    for (const auto& [name, average] : whole) EXPECT_TRUE(at::equal(again.at(name), average)) << name;
  }
}

TEST(FabricLoad, ACallbackThatItDoesNotKnowIsNotSetBack) {
  const TemporaryFolder folder;
  const std::string path = save_one_step(folder);
  FabricNet net;
  Fabric fabric({.callbacks = {EMAWeightAveraging({.decay = 0.5})}});
  (void)fabric.setup(net, sgd(net));
  step_on(fabric, net);
  step_on(fabric, net);
  expect_parts(error_of<CheckpointError>([&] { (void)fabric.load(path); }),
               {"Fabric.load: ", path, "no state of the callback EMAWeightAveraging", "before the first step"});
  EXPECT_EQ(fabric.global_step(), 2);
}

// ---- files that do not fit ------------------------------------------------------------------------------------------

TEST(FabricLoad, AFileThatDoesNotFitChangesNothing) {
  const TemporaryFolder folder;
  const std::string path = save_one_step(folder);
  FabricNet adam_net, scheduled_net;
  const OptimizerConfig scheduled(SGD(scheduled_net.parameters(), {.lr = 0.1, .momentum = 0.9}),
                                  StepLR({.step_size = 1}));
  for (FabricNet* net : {&adam_net, &scheduled_net}) {
    Fabric fabric;
    (void)fabric.setup(*net, net == &adam_net ? OptimizerConfig(AdamW(net->parameters())) : scheduled);
    for (int k = 0; k < 2; ++k) step_on(fabric, *net);
    std::vector<at::Tensor> before;
    for (const at::Tensor& parameter : net->parameters()) before.push_back(parameter.detach().clone());
    expect_parts(error_of<Error>([&] { (void)fabric.load(path); }),
                 {net == &adam_net ? "AdamW: the saved state belongs to SGD" : "no state of StepLR"});
    EXPECT_EQ(fabric.global_step(), 2);
    expect_equal_weights(net->parameters(), before);
    step_on(fabric, *net);
  }
}

TEST(FabricLoad, ARunThatIsLoadedHalfwayIsNotUsed) {
  const TemporaryFolder folder;
  const std::string path = save_one_step(folder);
  State damaged = read_checkpoint(path);
  State progress = damaged.part("progress");
  progress.set<int64_t>("rest", 77);
  damaged.put("progress", progress);
  (void)write_checkpoint(folder / "damaged.ckpt", damaged);
  FabricNet net;
  Fabric fabric;
  (void)fabric.setup(net, sgd(net));
  expect_parts(error_of<CheckpointError>([&] { (void)fabric.load(folder / "damaged.ckpt"); }), {"rest is 77"});
  expect_parts(error_of<Error>([&] { step_on(fabric, net); }),
               {"Fabric.step: a load has failed halfway", "Load another checkpoint"});
  (void)fabric.load(path);
  step_on(fabric, net);
  EXPECT_EQ(fabric.global_step(), 2);
}

// ---- positions ------------------------------------------------------------------------------------------------------

// Returns the numbers of the batches of one epoch of eight, which is saved in the body of batch 2, and continued in
// another process if `resumes`.
std::vector<int64_t> batches_seen(bool resumes, const std::function<void(Fabric&, FabricNet&, int64_t)>& train) {
  const TemporaryFolder folder;
  std::vector<int64_t> seen;
  for (const bool loads : {false, true}) {
    if (loads && !resumes) break;
    FabricNet net;
    Fabric fabric;
    (void)fabric.setup(net, sgd(net));
    FabricLoader loader = fabric.setup_dataloaders(
        DataLoader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{torch::arange(8)}), {.batch_size = 1}));
    if (loads) (void)fabric.load(folder / "saved.ckpt");
    for (const Batch& batch : loader.epoch(0)) {
      seen.push_back(batch[0].item().toLong());
      train(fabric, net, seen.back());
      if (seen.back() == 2 && !loads) fabric.save(folder / "saved.ckpt");
      if (seen.back() == 2 && resumes) break;
    }
  }
  return seen;
}

TEST(FabricLoad, BatchesThatAreNotTrainedAreNotRepeated) {
  const auto every_fourth = [](Fabric& fabric, FabricNet& net, int64_t k) {
    if (k % 4 == 0) step_on(fabric, net);
  };
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(batches_seen(false, every_fourth), all);
  EXPECT_EQ(batches_seen(true, every_fourth), all);
}

TEST(FabricLoad, ABatchWhoseStepHasThrownIsNotRepeated) {
  const auto throws_in_two = [](Fabric& fabric, FabricNet& net, int64_t k) {
    try {
      (void)fabric.step(fixed_batch(), [&](const Batch& batch) {
        if (k == 2) throw std::runtime_error("mine");
        return net.loss(batch);
      });
    } catch (const std::runtime_error&) {
    }
  };
  EXPECT_EQ(batches_seen(true, throws_in_two), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// A loop over two loaders of three and five batches, in step.
TEST(FabricLoad, OfTwoOpenPassesTheOneOfTheBatchTrains) {
  FabricNet net;
  Fabric fabric({.accumulate_grad_batches = 2});
  (void)fabric.setup(net, sgd(net));
  const auto numbers = [](int64_t count) {
    return DataLoader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{torch::arange(count)}), {});
  };
  auto [trained, read] = fabric.setup_dataloaders(numbers(3), numbers(5));
  {
    FabricPass batches = trained.epoch(0);
    auto batch = batches.begin();
    FabricPass others = read.epoch(0);
    auto other = others.begin();
    const auto closure = [&](const Batch&) { return net.loss(fixed_batch()); };
    expect_parts(error_of<Error>([&] { (void)fabric.step(fixed_batch(), closure); }),
                 {"Fabric.step: 2 passes over loaders are open", "as the loader gave it"});
    for (; batch != std::default_sentinel; ++batch, ++other) (void)fabric.step(*batch, closure);
  }
  EXPECT_EQ(fabric.global_step(), 2);  // the second has one batch, because the pass has ended
  EXPECT_EQ(fabric.current_epoch(), 1);
}

// ---- rollback -------------------------------------------------------------------------------------------------------

TEST(FabricLoad, EachSaveBeginsToCountRollbacksAnew) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  FabricNet net;
  Fabric fabric({.nonfinite_loss = NonFiniteLoss::rollback});
  (void)fabric.setup(net, sgd(net));
  for (int k = 0; k < 5; ++k) {
    step_on(fabric, net);
    fabric.save(folder / "newest.ckpt");
    (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net.loss(batch) * NAN; });
  }
  EXPECT_EQ(fabric.global_step(), 5);
}

TEST(FabricLoad, HasAName) {
  FabricNet net;
  Fabric fabric;
  (void)fabric.setup(net, sgd(net));
  expect_parts(error_of<CheckpointError>([&] { fabric.save(""); }), {"Fabric.save: the path is empty"});
}

}  // namespace
}  // namespace levin::fabric_load_test
