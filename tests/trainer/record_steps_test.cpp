// TrainerOptions::record_steps on a CPU: messages, decisions and what stays unchanged. step_graph_test.cpp tests
// that the results are bitwise identical.
#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/gradient_centralization.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/core/module_call.h"
#include "levin/libtorch/version.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/precision/mixed_precision.h"
#include "levin/trainer/step/recorded_part.h"
#include "ranks/named_optimizer.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::record_steps_test {
namespace {

using namespace test;

using Record = std::variant<bool, std::string>;

struct Dropping : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    if (on_training_step) on_training_step(batch_idx);
    ++calls;
    const at::Tensor hidden = torch::relu(levin::call(wide, dropout->forward(batch[0])));
    return torch::mse_loss(head->forward(hidden), batch[1]) * factor;
  }
  OptimizerConfig configure_optimizers() override {
    return make_optimizers ? make_optimizers(*this) : AdamW(parameters(), {.lr = 0.01});
  }
  torch::nn::Linear wide{register_module("wide", torch::nn::Linear(4, 16))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(16, 1))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.25))};
  double factor = 1;
  int calls = 0;
};

struct SpoilsBatch : Callback {
  void on_train_batch_start(Trainer&, LightningModule&, const Batch& batch, int64_t batch_idx) override {
    if (batch_idx == 9) batch[1].fill_(std::nan(""));
  }
};

struct Trained {
  std::vector<at::Tensor> weights = {};
  int calls = 0;
};

Trained train(const Record& record, const std::function<void(TrainerOptions&, Dropping&)>& change = nullptr,
              int64_t samples = 96, const std::string& ckpt = "") {
  torch::manual_seed(3);
  Dropping module;
  TrainerOptions options = quiet(1, {});
  options.record_steps = record;
  options.num_sanity_val_steps = 0;
  if (change) change(options, module);
  Trainer(options).fit(module, tiny_loader(samples), {}, ckpt);
  Trained trained{.calls = module.calls};
  for (const auto& parameter : module.parameters()) trained.weights.push_back(parameter.detach());
  return trained;
}

void expect_equal(const Trained& one, const Trained& other) {
  for (size_t i = 0; i < one.weights.size(); ++i) EXPECT_TRUE(torch::equal(one.weights[i], other.weights[i])) << i;
}

TEST(RecordSteps, TrainingStepIsCalledOnlyToRecordAndToCheck) {
  const Trained plain = train(false), recorded = train(true);
  EXPECT_EQ(plain.calls, 24);
  // Three windows before, one recorded, and next to the 1st, 2nd, 4th, 8th and 16th of twenty replays, and batches 8
  // and 16.
  EXPECT_EQ(recorded.calls, 3 + 1 + 5 + 2);
  expect_equal(plain, recorded);
}

TEST(RecordSteps, TheFormerNameStillWorks) {
  EXPECT_EQ(train(false, [](TrainerOptions& o, Dropping&) { o.cuda_graph = true; }).calls, 11);
}

TEST(RecordSteps, ContinuesEagerlyWhenTheHostTakesADifferentPath) {
  const auto branch = [](TrainerOptions&, Dropping& m) {
    m.on_training_step = [&m](int64_t batch_idx) { m.factor = batch_idx < 11 ? 1 : 0.5; };
  };
  const CapturedConsole console;
  expect_equal(train(false, branch), train(true, branch));
  EXPECT_TRUE(console.has("TrainerOptions.record_steps: batch 11 differs from the recorded step: aten::mul got"))
      << console.text();
  EXPECT_TRUE(console.has("The steps are not recorded, and run eagerly.")) << console.text();
}

TEST(RecordSteps, NamesTheOperatorThatReadsANumber) {
  struct Reads : Dropping {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = Dropping::training_step(batch, batch_idx);
      return loss.item<float>() > 1000 ? loss * 2 : loss;
    }
  };
  const CapturedConsole console;
  Reads module;
  TrainerOptions options = quiet(1, {});
  options.record_steps = true;
  Trainer(options).fit(module, tiny_loader(96));
  EXPECT_EQ(module.calls, 24);
  EXPECT_TRUE(console.has("aten::_local_scalar_dense reads a number of a tensor on the host")) << console.text();
}

TEST(RecordSteps, NamesAValueThatIsLoggedFromTheHost) {
  const auto log_number = [](TrainerOptions&, Dropping& m) {
    m.on_training_step = [&m](int64_t) { m.log("number", 3.0); };
  };
  const CapturedConsole console;
  expect_equal(train(false, log_number), train(true, log_number));
  EXPECT_TRUE(console.has("training_step logs \"number\" from the host")) << console.text();
}

TEST(RecordSteps, AutoSaysNothingOfWhatCannotBeRecorded) {
  const CapturedConsole console;
  const auto anomaly = [](TrainerOptions& o, Dropping&) { o.detect_anomaly = true; };
  expect_equal(train(false, anomaly), train("auto", anomaly));
  EXPECT_FALSE(console.has("record_steps")) << console.text();
}

TEST(RecordSteps, AutoDecidesAfterTimingBothWays) {
  const CapturedConsole console;
  const Trained plain = train(false, nullptr, 800), decided = train("auto", nullptr, 800);
  EXPECT_EQ(plain.calls, 200);
  expect_equal(plain, decided);
  // Whichever is faster here: most steps were replayed, or most have run.
  EXPECT_TRUE(decided.calls < 40 || decided.calls > 160) << decided.calls;
  EXPECT_EQ(console.has("record_steps: auto: steps are replayed from a recording: "), decided.calls < 40)
      << console.text();
}

TEST(RecordingTrial, IsAcceptedIfReplaysAreFaster) {
  for (const double replayed : {30e-6, 74e-6, 80e-6}) {
    RecordingTrial trial;
    int64_t windows = 0;
    while (!trial.is_over()) {
      const bool replays = trial.replays_next();
      EXPECT_EQ(replays, windows % 2 == 0) << "in turn";
      trial.add((replays ? replayed : 75e-6) * (++windows % 5 == 0 ? 1 : 3));
    }
    EXPECT_EQ(trial.is_faster(), replayed < 60e-6) << "a twentieth is noise";
    if (replayed == 30e-6) {
      EXPECT_EQ(trial.text(), "30 us instead of 75 us");
    }
  }
}

TEST(RecordSteps, WorksInBfloat16AndWithAnAverageOfWeights) {
  const auto options = [](TrainerOptions& o, Dropping&) {
    o.precision = "bf16-mixed";
    o.accumulate_grad_batches = 2;
    o.gradient_clip_val = 0.5;
    o.callbacks.push_back(EMAWeightAveraging({.decay = 0.9}));
  };
  const Trained recorded = train(true, options);
  EXPECT_LT(recorded.calls, 24);
  expect_equal(train(false, options), recorded);
}

TEST(RecordSteps, OptimizersThatComputeOnTheHostUpdateAfterEachReplay) {
  for (const char* name : {"lamb", "lars", "lookahead", "muon", "nadam", "rmsprop", "schedule_free", "torch_adam"}) {
    const auto options = [name](TrainerOptions& o, Dropping& m) {
      m.make_optimizers = [name](TinyModule& module) { return *named_optimizer(module, name); };
      o.gradient_clip_val = 0.1;
    };
    const CapturedConsole console;
    const Trained plain = train(false, options), recorded = train(true, options);
    EXPECT_EQ(recorded.calls, 11) << name << "\n" << console.text();
    expect_equal(plain, recorded);
  }
}

TEST(RecordSteps, AWarningNamesTheLibTorchThatAdagradNeeds) {
  const auto adagrad = [](TrainerOptions&, Dropping& m) {
    m.make_optimizers = [](TinyModule& module) { return Adagrad(module.parameters(), {.lr = 0.125}); };
  };
  const CapturedConsole console;
  const Trained plain = train(false, adagrad), recorded = train(true, adagrad);
  EXPECT_EQ(recorded.calls, 11) << console.text();
  expect_equal(plain, recorded);
  EXPECT_EQ(console.has("TrainerOptions.record_steps: Adagrad's recorded update needs LibTorch 2.8 or newer"),
            !LEVIN_TORCH_AT_LEAST(2, 8))
      << console.text();
}

TEST(RecordSteps, TheHostUpdatesWhereAScheduleMovesTheMomentum) {
  for (const bool adam : {false, true}) {
    const auto options = [adam](TrainerOptions&, Dropping& m) {
      m.make_optimizers = [adam](TinyModule& module) {
        OneCycleLR schedule({.max_lr = std::vector<double>{0.1}, .total_steps = 48});
        const LRSchedulerOptions each_step{.interval = Interval::step};
        if (adam) return OptimizerConfig(AdamW(module.parameters(), {.lr = 0.01}), std::move(schedule), each_step);
        return OptimizerConfig(SGD(module.parameters(), {.lr = 0.01, .momentum = 0.9}), std::move(schedule), each_step);
      };
    };
    const CapturedConsole console;
    const Trained plain = train(false, options, 192), recorded = train(true, options, 192);
    EXPECT_LT(recorded.calls, 24) << console.text();
    EXPECT_FALSE(console.has("not recorded")) << console.text();
    expect_equal(plain, recorded);
  }
}

TEST(RecordSteps, SkippedBatchesDoNotEndIt) {
  struct Skipper : Callback {
    void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) override {
      if (batch_idx >= 6 && batch_idx % 4 == 2) trainer.skip_batch();
    }
  };
  const auto options = [](TrainerOptions& o, Dropping&) { o.callbacks.push_back(Skipper()); };
  const CapturedConsole console;
  const Trained plain = train(false, options, 384), recorded = train(true, options, 384);
  EXPECT_LT(recorded.calls, 20) << "of 73 batches that are not skipped\n" << console.text();
  EXPECT_FALSE(console.has("not recorded")) << console.text();
  expect_equal(plain, recorded);
}

TEST(RecordSteps, AWindowsUpdateOnTheHostFollowsItsLastBatch) {
  const auto options = [](TrainerOptions& o, Dropping& m) {
    m.make_optimizers = [](TinyModule& module) { return *named_optimizer(module, "rmsprop"); };
    o.accumulate_grad_batches = 3;
    o.precision = MixedPrecision(
        {.dtype = MixedDtype::float16, .scaler = GradScalerOptions{.init_scale = 1 << 24, .growth_interval = 4}});
  };
  const CapturedConsole console;
  const Trained recorded = train(true, options, 192);
  EXPECT_LT(recorded.calls, 48) << console.text();
  EXPECT_TRUE(console.has("optimizer steps were skipped")) << console.text();
  expect_equal(train(false, options, 192), recorded);
}

TEST(RecordSteps, CallbacksBeforeTheUpdateAndTheModulesOptimizerStepRunInEveryWindow) {
  struct Own : Dropping {
    void optimizer_step(int64_t epoch, int64_t batch_idx, Optimizer& optimizer) override {
      ++updates;
      Dropping::optimizer_step(epoch, batch_idx, optimizer);
    }
    int updates = 0;
  };
  struct Halving : Callback {
    void on_before_optimizer_step(Trainer&, LightningModule& module, Optimizer&) override {
      for (const auto& parameter : module.parameters()) {
        if (parameter.grad().defined()) parameter.mutable_grad().mul_(0.5);
      }
    }
  };
  std::vector<at::Tensor> weights[2];
  for (const bool record : {false, true}) {
    torch::manual_seed(3);
    Own module;
    TrainerOptions options = quiet(1, {Halving(), GradientCentralization()});
    options.record_steps = record;
    Trainer(options).fit(module, tiny_loader(96));
    EXPECT_EQ(module.updates, 24);
    EXPECT_EQ(module.calls, record ? 11 : 24);
    weights[record] = module.parameters();
  }
  for (size_t i = 0; i < weights[0].size(); ++i) EXPECT_TRUE(torch::equal(weights[0][i], weights[1][i])) << i;
}

TEST(RecordSteps, AnUpdateOnTheHostIsSkippedIfThePolicyRequiresIt) {
  const auto options = [](TrainerOptions& o, Dropping& m) {
    m.make_optimizers = [](TinyModule& module) { return *named_optimizer(module, "rmsprop"); };
    o.nonfinite_loss = NonFiniteLoss::skip;
    o.callbacks.push_back(SpoilsBatch());
  };
  const CapturedConsole console;
  const Trained plain = train(false, options), recorded = train(true, options);
  EXPECT_EQ(recorded.calls, 11) << console.text();
  EXPECT_TRUE(console.has("the loss is nan in epoch 0, batch 9, global step 9. Its update is skipped."))
      << console.text();
  EXPECT_TRUE(plain.weights[0].isfinite().all().item<bool>());
  expect_equal(plain, recorded);
}

TEST(RecordSteps, WorksWithRecomputationThatDrawsNothing) {
  const auto options = [](TrainerOptions& o, Dropping& m) {
    m.dropout->options.p(0);
    o.recompute = RecomputeOptions{.modules = {"wide"}};
  };
  const CapturedConsole console;
  const Trained recorded = train(true, options);
  EXPECT_LT(recorded.calls, 24) << console.text();
  expect_equal(train(false, options), recorded);
}

TEST(RecordSteps, AResumedRunRecordsAgainAndEndsBitwiseIdentically) {
  const TemporaryFolder folder;
  torch::manual_seed(3);
  const Trained whole = train(true, [](TrainerOptions& o, Dropping&) { o.max_epochs = 2; });
  torch::manual_seed(3);
  Dropping first;
  TrainerOptions options = quiet(1, {});
  options.record_steps = true;
  options.num_sanity_val_steps = 0;
  Trainer begun(options);
  begun.fit(first, tiny_loader(96));
  begun.save_checkpoint(folder.path() + "/half.safetensors");
  const Trained resumed = train(
      true, [](TrainerOptions& o, Dropping&) { o.max_epochs = 2; }, 96, folder.path() + "/half.safetensors");
  EXPECT_LT(resumed.calls, 24);
  expect_equal(whole, resumed);
}

TEST(RecordSteps, IsTrueFalseOrAuto) {
  EXPECT_TRUE(has(error_of([] { train("often"); }), "TrainerOptions.record_steps")) << "and lists what is allowed";
}

}  // namespace
}  // namespace levin::record_steps_test
