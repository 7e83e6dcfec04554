// A step that is captured once and replayed trains bitwise identically to a step that runs each time. Here a CPU
// replays (support/repeating_strategy.h); tests/cuda has a GPU.
#include "levin/trainer/step/step_graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/optim/adam.h"
#include "levin/optim/step_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "support/captured_console.h"
#include "support/repeating_strategy.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::step_graph_test {
namespace {

using namespace test;

// A linear layer after batch norm, which keeps buffers; two metrics. The loss is weighted by the batch's third tensor.
class Net : public TinyModule {
 public:
  Net() { torch::nn::init::constant_(layer->bias, 0.25); }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = torch::mse_loss(layer->forward(norm->forward(batch[0])), batch[1]) * batch[2].mean();
    log("loss", loss, {.on_step = true, .on_epoch = true});
    log("worst", (loss * 2).detach(), {.on_epoch = true, .reduce_fx = ReduceFx::max});
    return loss;
  }
  OptimizerConfig configure_optimizers() override {
    if (make_optimizers) return make_optimizers(*this);
    return AdamW(parameters(), {.lr = 0.0625, .weight_decay = 0.125});
  }
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(4))};
};

// tiny_loader's numbers with weights of one, but for batch `bad`, whose loss is nan.
std::shared_ptr<TensorLoader> loader(int64_t samples, int64_t bad) {
  Batch all;
  const auto tiny = tiny_loader(samples, samples);
  tiny->start(0, 0);
  tiny->next(all);
  at::Tensor weights = torch::ones({samples, 1});
  if (bad >= 0) weights.slice(0, bad * 4, bad * 4 + 1).fill_(NAN);
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{all[0], all[1], weights}, 4);
}

struct Result {
  std::vector<at::Tensor> tensors;
  Metrics metrics;
  int64_t steps = 0;
  int64_t skipped = 0;
  std::string error;
};

struct Wanted {
  int64_t samples = 48;
  int64_t epochs = 2;
  std::function<void(TrainerOptions&)> options = nullptr;
  std::function<OptimizerConfig(TinyModule&)> optimizers = nullptr;
  Callbacks callbacks = {};
  int64_t bad = -1;
};

Result train(const Wanted& wanted, const std::shared_ptr<DeviceLog>& log, bool taped = false) {
  torch::manual_seed(1);
  Net module;
  module.make_optimizers = wanted.optimizers;
  TrainerOptions options = quiet(wanted.epochs, wanted.callbacks);
  options.num_sanity_val_steps = 0;
  if (wanted.options) wanted.options(options);
  if (log != nullptr) {
    options.strategy = RepeatingStrategy(log);
    options.record_steps = true;
  }
  if (taped) options.record_steps = true;
  Result result;
  Trainer trainer(options);
  result.error = error_of([&] { trainer.fit(module, loader(wanted.samples, wanted.bad), tiny_loader(8)); });
  for (const auto& parameter : module.parameters()) result.tensors.push_back(parameter.detach());
  for (const auto& buffer : module.buffers()) result.tensors.push_back(buffer);
  result.metrics = trainer.callback_metrics();
  result.steps = trainer.global_step();
  result.skipped = trainer.skipped_steps();
  return result;
}

// nan, of a batch whose loss is, equals nan here.
void expect_same_metrics(const Metrics& one, const Metrics& other) {
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, value] : one) {
    ASSERT_TRUE(other.contains(name)) << name;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(other.at(name))) << name << " is " << other.at(name);
    } else {
      EXPECT_EQ(value, other.at(name)) << name;
    }
  }
}

void expect_same_result(const Result& plain, const Result& repeated) {
  EXPECT_EQ(plain.error, repeated.error);
  EXPECT_EQ(plain.steps, repeated.steps);
  EXPECT_EQ(plain.skipped, repeated.skipped);
  expect_same_metrics(plain.metrics, repeated.metrics);
  for (size_t i = 0; i < plain.tensors.size(); ++i) {
    EXPECT_TRUE(torch::equal(plain.tensors[i], repeated.tensors[i])) << "tensor " << i;
  }
}

// Trains eagerly, on a device that captures, and on a CPU's tape; returns what the device was asked for.
std::shared_ptr<DeviceLog> expect_the_same(const Wanted& wanted) {
  const Result plain = train(wanted, nullptr);
  const auto log = std::make_shared<DeviceLog>();
  expect_same_result(plain, train(wanted, log));
  EXPECT_GT(log->replays, 0);
  const CapturedConsole console;
  expect_same_result(plain, train(wanted, nullptr, /*taped=*/true));
  EXPECT_FALSE(console.has("The steps are not recorded")) << console.text();
  return log;
}

TEST(StepGraph, ARecordedStepTrainsBitwiseIdentically) {
  const auto log = expect_the_same({});  // 24 batches
  EXPECT_EQ(log->warm_ups, 3);
  EXPECT_EQ(log->records, 1);
  EXPECT_EQ(log->replays, 21);
}

TEST(StepGraph, AWindowHasThreeRecordings) {
  const auto log = expect_the_same({.options = [](TrainerOptions& o) { o.accumulate_grad_batches = 4; }});
  EXPECT_EQ(log->warm_ups, 12) << "three windows";
  EXPECT_EQ(log->records, 3) << "the first batch, those between, the last";
  EXPECT_EQ(log->replays, 12);
}

TEST(StepGraph, AWindowOfTwoHasTwoRecordings) {
  const auto log = expect_the_same({.options = [](TrainerOptions& o) { o.accumulate_grad_batches = 2; }});
  EXPECT_EQ(log->records, 2);
}

TEST(StepGraph, AWindowThatTheEpochsEndCutsRunsEagerly) {
  const auto log = expect_the_same(
      {.samples = 40, .epochs = 3, .options = [](TrainerOptions& o) { o.accumulate_grad_batches = 4; }});
  EXPECT_EQ(log->records, 3);
  EXPECT_EQ(log->replays, 4 * 4) << "of nine windows two are warm-up and whole, one is warm-up and cut, two are cut";
}

TEST(StepGraph, ABatchOfADifferentShapeRunsEagerlyAndIsReportedOnce) {
  const CapturedConsole console;
  const auto log = expect_the_same({.samples = 50, .epochs = 3});  // 13 batches, the last of 2
  EXPECT_EQ(log->records, 1);
  EXPECT_EQ(log->replays, 3 * 12 - 3);
  int warnings = 0;
  for (const auto& line : console.lines())
    warnings += has(line, "batch 12 has the shapes (2, 4), (2, 1), (2, 1) and") ? 1 : 0;
  EXPECT_EQ(warnings, 1) << console.text();
}

// Batches of equal shapes, but the last one is a transposed tensor, or of a different type.
TEST(StepGraph, ABatchOfOtherStridesOrADifferentTypeIsNotReportedByItsShapes) {
  for (const bool strides : {true, false}) {
    std::vector<Batch> batches;
    for (int64_t k = 0; k < 12; ++k) {
      const bool last = k == 11;
      const at::Tensor x = torch::ones({4, 4}) * (0.1 * static_cast<double>(k)), y = torch::ones({4, 1});
      const at::Tensor unused = torch::ones({2});
      batches.push_back(
          {last && strides ? x.t().contiguous().t() : x, y, last && !strides ? unused.to(torch::kDouble) : unused});
    }
    const CapturedConsole console;
    TinyModule module;
    TrainerOptions options = quiet(1, {});
    options.record_steps = true;
    struct Listed : Loader {
      void start(int64_t, int64_t first) override { at = static_cast<size_t>(first); }
      bool next(Batch& batch) override {
        if (at == all.size()) return false;
        batch = all[at++];
        return true;
      }
      [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::ssize(all); }
      std::vector<Batch> all;
      size_t at = 0;
    };
    const auto loader = std::make_shared<Listed>();
    loader->all = batches;
    Trainer(options).fit(module, loader);
    EXPECT_TRUE(
        holds(console.text(), {strides ? "batch 11 has the strides (1, 4) in tensor 0 and the recorded step (4, 1)"
                                       : "batch 11 has the type Double in tensor 2 and the recorded step Float"}));
    EXPECT_FALSE(console.has("shapes"));
  }
}

TEST(StepGraph, ADifferentShapeInsideAWindowIsAddedToTheSameGradients) {
  const CapturedConsole console;
  const auto log = expect_the_same({.samples = 46, .epochs = 4, .options = [](TrainerOptions& o) {
                                      o.accumulate_grad_batches = 3;  // 12 batches, the last of 2
                                    }});
  EXPECT_EQ(log->records, 3);
}

TEST(StepGraph, FollowsALearningRateThatMovesEveryStep) {
  expect_the_same({.optimizers = [](TinyModule& m) {
    return OptimizerConfig(SGD(m.parameters(), {.lr = 0.25, .momentum = 0.5}), StepLR({.step_size = 2, .gamma = 0.5}),
                           {.interval = Interval::step});
  }});
}

TEST(StepGraph, ClipsAsTheOptionsSay) {
  for (const auto algorithm : {ClipAlgorithm::norm, ClipAlgorithm::value}) {
    expect_the_same({.options = [=](TrainerOptions& o) {
      o.gradient_clip_val = 0.01;
      o.gradient_clip_algorithm = algorithm;
    }});
  }
}

TEST(StepGraph, RecordsAnewWhenALayerIsFrozen) {
  struct Freezer : Callback {
    void on_train_epoch_start(Trainer& t, LightningModule& m) override {
      static_cast<Net&>(m).layer->weight.set_requires_grad(t.current_epoch() != 1);
    }
  };
  const auto log = expect_the_same({.epochs = 3, .callbacks = {Freezer()}});
  EXPECT_EQ(log->records, 3) << "once for each epoch";
}

// Reliability: nonfinite_loss.
TEST(StepGraph, ALossThatIsNotFiniteStopsBeforeItsUpdate) {
  const Result plain = train({.bad = 7}, nullptr);
  const auto log = std::make_shared<DeviceLog>();
  const Result repeated = train({.bad = 7}, log);
  EXPECT_TRUE(has(repeated.error, "the loss is nan in epoch 0, batch 7, global step 7")) << repeated.error;
  EXPECT_EQ(plain.error, repeated.error);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(plain.tensors[i], repeated.tensors[i]));
}

TEST(StepGraph, ItsUpdateIsSkippedIfThePolicyRequiresIt) {
  for (const int64_t accumulate : {1, 3}) {
    const CapturedConsole console;
    expect_the_same({.options =
                         [=](TrainerOptions& o) {
                           o.nonfinite_loss = NonFiniteLoss::skip;
                           o.accumulate_grad_batches = accumulate;
                         },
                     .bad = 11});
    EXPECT_TRUE(console.has("Its update is skipped.")) << console.text();
  }
}

TEST(StepGraph, GoesBackToTheCheckpointIfThePolicyRequiresIt) {
  const CapturedConsole console;
  const TemporaryFolder folder;
  const auto log = std::make_shared<DeviceLog>();
  const Result repeated = train({.options =
                                     [&](TrainerOptions& o) {
                                       o.nonfinite_loss = NonFiniteLoss::rollback;
                                       o.default_root_dir = folder.path();
                                       o.enable_checkpointing = true;
                                     },
                                 .callbacks = {ModelCheckpoint({.save_top_k = -1, .every_n_train_steps = 4})},
                                 .bad = 9},
                                log);
  EXPECT_EQ(repeated.error, "");
  EXPECT_TRUE(console.has("The weights are restored from")) << console.text();
  EXPECT_EQ(log->records, 2) << "the optimizer's tensors are others afterwards";
  EXPECT_TRUE(repeated.tensors[0].isfinite().all().item<bool>());
}

TEST(StepGraph, ScalesTheLossAsWithout) {
  const CapturedConsole console;
  expect_the_same({.options = [](TrainerOptions& o) {
    o.precision = MixedPrecision(
        {.dtype = MixedDtype::float16, .scaler = GradScalerOptions{.init_scale = 1048576, .growth_interval = 4}});
  }});
}

TEST(StepGraph, ABatchThatACallbackSkipsCountsForNothing) {
  struct Skipper : Callback {
    void on_train_batch_start(Trainer& t, LightningModule&, const Batch&, int64_t batch_idx) override {
      if (batch_idx == 9) t.skip_batch();
    }
  };
  expect_the_same({.callbacks = {Skipper()}});
}

TEST(StepGraph, GivesCallbacksTheBatchsOwnLoss) {
  struct Losses : Callback {
    explicit Losses(std::vector<at::Tensor>& list) : all(list) {}
    void on_train_batch_end(Trainer&, LightningModule&, const at::Tensor& loss, const Batch&, int64_t) override {
      all.push_back(loss);
    }
    std::vector<at::Tensor>& all;
  };
  std::vector<at::Tensor> plain, repeated;
  train({.callbacks = {Losses(plain)}}, nullptr);
  train({.callbacks = {Losses(repeated)}}, std::make_shared<DeviceLog>());
  ASSERT_EQ(plain.size(), repeated.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(plain[i], repeated[i])) << "batch " << i;
}

}  // namespace
}  // namespace levin::step_graph_test
