// Fabric: a loop of one's own ends with the Trainer's weights, bitwise.
#include "levin/trainer/fabric.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>

#include "callbacks/quiet_trainer.h"
#include "levin/data/loading/dataloader.h"
#include "levin/optim/adam.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "levin/strategies/device/model_parallel.h"
#include "support/field_count.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"
#include "support/unsized_loader.h"
#include "trainer/fabric_net.h"

namespace levin::fabric_test {
namespace {

using namespace test;

constexpr int64_t kEpochs = 2;
constexpr int64_t kBatches = 10;

// The options that a Trainer and a Fabric share.
struct Shared {
  std::string precision = "32-true";  // or "float16": with a loss scaler
  int64_t accumulate = 1;
  double clip = 0;
  bool scheduled = false;
  bool adam = false;
  std::variant<bool, std::string> record = false;
  bool is_unsized = false;  // the loader does not know its length
};

// A new one for each run, because a loss scaler has a state.
Component<Precision> precision_of(const Shared& shared) {
  if (shared.precision != "float16") return shared.precision;
  return MixedPrecision({.dtype = MixedDtype::float16});
}

OptimizerConfig optimizers_of(FabricNet& net, const Shared& shared) {
  OptimizerConfig config = shared.adam ? OptimizerConfig(AdamW(net.parameters(), {.lr = 0.05}))
                                       : OptimizerConfig(SGD(net.parameters(), {.lr = 0.1, .momentum = 0.9}));
  if (shared.scheduled) {
    config.schedule(StepLR({.step_size = 1, .gamma = 0.5}));                                // by epochs
    config.schedule(StepLR({.step_size = 2, .gamma = 0.9}), {.interval = Interval::step});  // by steps
  }
  return config;
}

struct Trained : LightningModule {
  explicit Trained(const Shared& given) : shared(given) {}
  at::Tensor training_step(const Batch& batch, int64_t) override { return net.loss(batch); }
  OptimizerConfig configure_optimizers() override { return optimizers_of(net, shared); }
  Shared shared;
  std::shared_ptr<FabricNet> registered = register_module("net", std::make_shared<FabricNet>());
  FabricNet& net = *registered;
};

std::shared_ptr<Loader> loader_of(const Shared& shared) {
  if (shared.is_unsized) return std::make_shared<UnsizedLoader>(tiny_loader(4 * kBatches), /*read_ahead=*/false);
  return tiny_loader(4 * kBatches);
}

std::vector<at::Tensor> trainers_weights(const Shared& shared) {
  Trained module(shared);
  TrainerOptions options = quiet(kEpochs, {});
  options.precision = precision_of(shared);
  options.accumulate_grad_batches = shared.accumulate;
  if (shared.clip > 0) options.gradient_clip_val = shared.clip;
  options.record_steps = shared.record;
  Trainer(options).fit(module, loader_of(shared));
  return module.net.parameters();
}

FabricOptions fabric_options(const Shared& shared) {
  FabricOptions options;
  options.num_threads = 1;
  options.precision = precision_of(shared);
  options.accumulate_grad_batches = shared.accumulate;
  if (shared.clip > 0) options.gradient_clip_val = shared.clip;
  options.record_steps = shared.record;
  return options;
}

// Trains by Fabric::step.
void train_by_steps(FabricNet& net, const Shared& shared) {
  Fabric fabric(fabric_options(shared));
  (void)fabric.setup(net, optimizers_of(net, shared));
  FabricLoader loader = fabric.setup_dataloaders(loader_of(shared));
  for (int64_t epoch = fabric.current_epoch(); epoch < kEpochs; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
    }
  }
  EXPECT_EQ(fabric.current_epoch(), kEpochs);
}

void expect_trainers_weights(const Shared& shared) {
  FabricNet net;
  train_by_steps(net, shared);
  expect_equal_weights(net.parameters(), trainers_weights(shared));
}

TEST(FabricStep, EndsAtTheTrainersWeights) {
  expect_trainers_weights({});
  expect_trainers_weights({.adam = true});
}

TEST(FabricStep, TheLastWindowOfAnEpochTakesTheBatchesThatAreLeft) {
  expect_trainers_weights({.accumulate = 4, .clip = 0.05});  // 4, 4 and 2 batches
}

TEST(FabricStep, TheEndOfALoaderOfUnknownLengthIsTheTrainers) {
  expect_trainers_weights({.accumulate = 4, .scheduled = true, .is_unsized = true});
}

TEST(FabricStep, ClipsAndSchedulesAsTheTrainer) {
  expect_trainers_weights({.accumulate = 4, .clip = 0.05, .scheduled = true, .adam = true});
}

TEST(FabricStep, MixedPrecisionIsTheTrainers) {
  expect_trainers_weights({.precision = "bf16-mixed", .accumulate = 3});
  expect_trainers_weights({.precision = "float16", .clip = 0.05});
}

// A network that dp can copy.
struct CopiedNet : torch::nn::Cloneable<CopiedNet> {
  CopiedNet() { reset(); }  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall)
  void reset() override { net = register_module("net", std::make_shared<FabricNet>()); }
  std::shared_ptr<FabricNet> net;
};

struct CopiedNetTrained : LightningModule {
  at::Tensor training_step(const Batch& batch, int64_t) override { return net->loss(batch); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
  [[nodiscard]] std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>&) const override {
    return std::make_shared<CopiedNetTrained>();
  }
  std::shared_ptr<FabricNet> net = register_module("net", std::make_shared<FabricNet>());
};

TEST(FabricStep, ReplicasOnSeveralDevicesEndAtTheTrainersWeights) {
  for (const char* strategy : {"dp", "dp_balanced"}) {
    SCOPED_TRACE(strategy);
    CopiedNetTrained trained;
    TrainerOptions options = quiet(kEpochs, {});
    options.devices = 2;
    options.strategy = strategy;
    Trainer(options).fit(trained, tiny_loader(4 * kBatches));

    CopiedNet net;
    Fabric fabric({.strategy = strategy, .devices = 2, .num_threads = 1});
    (void)fabric.setup(net, SGD(net.parameters(), {.lr = 0.1}));
    FabricLoader loader = fabric.setup_dataloaders(tiny_loader(4 * kBatches));
    std::atomic<int64_t> samples = 0, calls = 0;
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (const Batch& batch : loader.epoch(epoch)) {
        (void)fabric.step<CopiedNet>(batch, [&](CopiedNet& replica, const Batch& part) {
          samples += part.size();
          ++calls;
          return replica.net->loss(part);
        });
      }
    }
    expect_equal_weights(net.parameters(), trained.parameters());
    EXPECT_EQ(samples, kEpochs * 4 * kBatches);
    EXPECT_EQ(calls, kEpochs * kBatches * 2);
  }
}

TEST(FabricStep, BlocksOfASequentialOnSeveralDevicesEndAtTheWeightsOfOne) {
  FabricNet placed, plain;
  for (FabricNet* net : {&placed, &plain}) {
    FabricOptions options{.accelerator = "cpu", .num_threads = 1};
    if (net == &placed) {
      options.strategy = ModelParallel({.placement = Placement{{"layers.0", 0}, {"layers.3", 1}}});
      options.devices = 2;
    }
    Fabric fabric(options);
    (void)fabric.setup(*net, SGD(net->parameters(), {.lr = 0.1}));
    for (int k = 0; k < 2; ++k) {
      (void)fabric.step(fixed_batch(), [&](const Batch& batch) { return net->loss(batch); });
    }
  }
  expect_equal_weights(placed.parameters(), plain.parameters());
}

TEST(FabricStep, RecordedStepsEndAtTheSameWeights) {
  FabricNet recorded, eager;
  train_by_steps(recorded, {.adam = true, .record = true});
  train_by_steps(eager, {.adam = true});
  expect_equal_weights(recorded.parameters(), eager.parameters());
  EXPECT_LT(recorded.calls, eager.calls);
}

TEST(FabricStep, ReturnsTheLossDividedByItsWindow) {
  FabricNet net;
  Fabric fabric({.accumulate_grad_batches = 2});
  (void)fabric.setup(net, SGD(net.parameters(), {.lr = 0}));
  const Batch batch = fixed_batch();
  const double whole = net.loss(batch).item<double>();
  const at::Tensor loss = fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_FLOAT_EQ(loss.item<float>(), static_cast<float>(whole / 2));
  EXPECT_EQ(fabric.global_step(), 0);
  (void)fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
  EXPECT_EQ(fabric.global_step(), 1);
}

// A loop with backward and optimizer.step.
void train_by_hand(FabricNet& net, const Shared& shared, int64_t accumulate = 1) {
  FabricOptions options;
  options.num_threads = 1;
  options.precision = precision_of(shared);
  Fabric fabric(options);
  FabricOptimizer optimizer = fabric.setup(net, optimizers_of(net, shared));
  FabricLoader loader = fabric.setup_dataloaders(tiny_loader(4 * kBatches));
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    int64_t k = 0;
    for (const Batch& batch : loader.epoch(epoch)) {
      const bool steps = ++k % accumulate == 0;
      const auto unsynced = fabric.no_backward_sync(!steps);
      at::Tensor loss;
      {
        const auto autocast = fabric.autocast();
        loss = net.loss(batch);
      }
      if ((k - 1) % accumulate == 0) optimizer.zero_grad();
      fabric.backward(accumulate == 1 ? loss : loss / accumulate);
      if (!steps) continue;
      if (shared.clip > 0) fabric.clip_gradients(optimizer, {.max_norm = shared.clip});
      optimizer.step();
    }
  }
  EXPECT_EQ(fabric.current_epoch(), kEpochs);
}

TEST(FabricBackward, ALoopByHandEndsAtTheTrainersWeights) {
  for (const Shared& shared : {Shared{.clip = 0.05}, Shared{.precision = "bf16-mixed", .adam = true}}) {
    FabricNet net;
    train_by_hand(net, shared);
    expect_equal_weights(net.parameters(), trainers_weights(shared));
  }
}

TEST(FabricBackward, ScalesTheLossAsTheTrainer) {
  const Shared shared{.precision = "float16", .clip = 0.05};
  FabricNet net;
  train_by_hand(net, shared);
  expect_equal_weights(net.parameters(), trainers_weights(shared));
}

TEST(FabricBackward, AccumulatesLikeTheTrainer) {
  FabricNet net;
  train_by_hand(net, {}, /*accumulate=*/5);
  expect_equal_weights(net.parameters(), trainers_weights({.accumulate = 5}));
}

TEST(FabricBackward, TwoPlayersEndWhereALoopWithoutLevinEnds) {
  const auto generator_of = [](TwoNets& nets) { return torch::optim::SGD(nets.generator->parameters(), 0.05); };
  const auto critic_of = [](TwoNets& nets) { return torch::optim::SGD(nets.critic->parameters(), 0.1); };
  TwoNets with, without;
  {
    Fabric fabric({.num_threads = 1});
    FabricOptimizer generator = fabric.setup(with.generator, generator_of(with), "generator");
    FabricOptimizer critic = fabric.setup(with.critic, critic_of(with), "critic");
    for (int64_t k = 0; k < 5; ++k) {
      critic.zero_grad();
      fabric.backward(with.critic_loss(k));
      critic.step();
      generator.zero_grad();
      fabric.backward(with.generator_loss(k));
      generator.step();
    }
    EXPECT_EQ(fabric.global_step(), 10);
    EXPECT_EQ(fabric.optimizers().size(), 2U);
  }
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  torch::optim::SGD generator = generator_of(without), critic = critic_of(without);
  for (int64_t k = 0; k < 5; ++k) {
    critic.zero_grad();
    without.critic_loss(k).backward();
    critic.step();
    generator.zero_grad();
    without.generator_loss(k).backward();
    generator.step();
  }
  torch::set_num_threads(threads);
  expect_equal_weights(with.generator->parameters(), without.generator->parameters());
  expect_equal_weights(with.critic->parameters(), without.critic->parameters());
}

TEST(Fabric, ListsEveryOptionOnce) {
  EXPECT_EQ(testing::field_count<FabricOptions>(), field_names<FabricOptions>().size());
  EXPECT_TRUE(testing::in_declared_order<FabricOptions>());
}

}  // namespace
}  // namespace levin::fabric_test
