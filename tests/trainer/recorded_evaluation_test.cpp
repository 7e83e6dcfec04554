// TrainerOptions::record_steps on a CPU for validation_step, test_step and predict_step.
#include "levin/trainer/step/recorded_evaluation.h"

#include <gtest/gtest.h>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/metrics/aggregation.h"
#include "levin/precision/mixed_precision.h"
#include "support/captured_console.h"
#include "support/tiny_module.h"

namespace levin::recorded_evaluation_test {
namespace {

using namespace test;

using Record = std::variant<bool, std::string>;

struct Evaluated : TinyModule {
  void validation_step(const Batch& batch, int64_t batch_idx) override {
    ++calls;
    factor = batch_idx < halved_from ? 1 : 0.5;
    const at::Tensor error = error_of_batch(batch);
    if (on_validation_step) on_validation_step(*this, error, batch_idx);
    if (on_validation_of) on_validation_of(*this, batch);
    log("val_loss", error);
    log("val_most", error, {.on_step = true, .reduce_fx = ReduceFx::max});
  }
  void test_step(const Batch& batch, int64_t) override {
    ++calls;
    log("test_loss", error_of_batch(batch));
  }
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    ++calls;
    at::Tensor prediction = outputs(batch);
    if (on_predict_step) on_predict_step(*this, batch, prediction);
    return prediction;
  }
  void on_validation_batch_start(const Batch&, int64_t batch_idx, int64_t) override {
    if (before_validation_batch) before_validation_batch(*this, batch_idx);
  }
  at::Tensor outputs(const Batch& batch) {
    const at::Tensor hidden = torch::relu(wide->forward(batch[0]));
    return head->forward(dropout->forward(hidden)) * factor;
  }
  at::Tensor error_of_batch(const Batch& batch) { return torch::mse_loss(outputs(batch), batch[1]); }

  torch::nn::Linear wide{register_module("wide", torch::nn::Linear(4, 16))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(16, 1))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.25))};
  std::function<void(Evaluated&, const at::Tensor&, int64_t)> on_validation_step = nullptr;
  std::function<void(Evaluated&, const Batch&)> on_validation_of = nullptr;
  std::function<void(Evaluated&, const Batch&, const at::Tensor&)> on_predict_step = nullptr;
  std::function<void(Evaluated&, int64_t)> before_validation_batch = nullptr;
  std::vector<at::Tensor> kept = {};
  double factor = 1;
  int64_t halved_from = 1000;  // a batch
  int calls = 0;
};

struct Outcome {
  std::vector<Metrics> metrics = {};
  Predictions predictions = {};
  int calls = 0;
};

using Change = std::function<void(TrainerOptions&, Evaluated&)>;

TrainerOptions recording(const Record& record) {
  TrainerOptions options = quiet(1, {});
  options.record_steps = record;
  options.num_sanity_val_steps = 0;
  return options;
}

Outcome validate(const Record& record, const Change& change = nullptr, int64_t samples = 96) {
  torch::manual_seed(3);
  Evaluated module;
  TrainerOptions options = recording(record);
  if (change) change(options, module);
  const auto metrics = Trainer(options).validate(module, {tiny_loader(samples)});
  return {.metrics = metrics, .calls = module.calls};
}

Outcome fit(const Record& record, const Change& change = nullptr, int64_t epochs = 3) {
  torch::manual_seed(3);
  Evaluated module;
  TrainerOptions options = recording(record);
  options.max_epochs = epochs;
  if (change) change(options, module);
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(40), tiny_loader(96));
  return {.metrics = {trainer.callback_metrics()}, .calls = module.calls};
}

// Two batches before, one recorded, and next to the 1st, 2nd, 4th, 8th and 16th of 21 replays.
constexpr int kCalled = 2 + 1 + 5;

TEST(RecordedEvaluation, CallsTheStepOnlyToRecordAndToCheck) {
  const Outcome plain = validate(false), recorded = validate(true);
  EXPECT_EQ(plain.calls, 24);
  EXPECT_EQ(recorded.calls, kCalled);
  EXPECT_EQ(plain.metrics, recorded.metrics);
  EXPECT_TRUE(recorded.metrics[0].contains("val_most_epoch"));
}

TEST(RecordedEvaluation, WorksForTestsAndPredictionsOfEachLoader) {
  auto run = [](bool record) {
    torch::manual_seed(3);
    Evaluated module;
    Trainer trainer(recording(record));
    Outcome outcome{.metrics = trainer.test(module, {tiny_loader(96), tiny_loader(96, 8)})};
    outcome.predictions = trainer.predict(module, {tiny_loader(96), tiny_loader(98)});
    outcome.calls = module.calls;
    return outcome;
  };
  const Outcome plain = run(false), recorded = run(true);
  EXPECT_EQ(plain.metrics, recorded.metrics);
  EXPECT_EQ(plain.calls, 24 + 12 + 24 + 25);
  // Of 12 batches, 9 are replays and 4 of these are checked; the smaller last batch of 98 samples runs eagerly.
  EXPECT_EQ(recorded.calls, kCalled + (2 + 1 + 4) + kCalled + kCalled + 1);
  for (size_t k = 0; k < 2; ++k) {
    ASSERT_EQ(plain.predictions[k].size(), recorded.predictions[k].size());
    for (size_t i = 0; i < plain.predictions[k].size(); ++i) {
      EXPECT_TRUE(torch::equal(plain.predictions[k][i], recorded.predictions[k][i])) << k << " " << i;
    }
  }
}

TEST(RecordedEvaluation, SeesTheWeightsOfEachEpoch) {
  const Outcome plain = fit(false), recorded = fit(true);
  EXPECT_EQ(plain.metrics, recorded.metrics);
  EXPECT_EQ(plain.calls, 72);
  // The first replay of each further pass is checked too, and of all replays the 32nd and the 64th.
  EXPECT_EQ(recorded.calls, kCalled + 2 + 2);
}

TEST(RecordedEvaluation, WorksInBfloat16WithAnAverageOfWeights) {
  const Change change = [](TrainerOptions& o, Evaluated&) {
    o.precision = "bf16-mixed";
    o.callbacks.push_back(EMAWeightAveraging({.decay = 0.9}));
  };
  const CapturedConsole console;
  const Outcome plain = fit(false, change), recorded = fit(true, change);
  EXPECT_EQ(plain.metrics, recorded.metrics);
  EXPECT_LT(recorded.calls, 40) << console.text();
}

TEST(RecordedEvaluation, RecordsAnewWhereWeightsLieElsewhere) {
  const Change change = [](TrainerOptions&, Evaluated& m) {
    m.before_validation_batch = [](Evaluated& module, int64_t batch_idx) {
      if (batch_idx == 0) module.head->weight.set_data(module.head->weight.detach().clone());
    };
  };
  const CapturedConsole console;
  const Outcome plain = fit(false, change), recorded = fit(true, change);
  EXPECT_EQ(plain.metrics, recorded.metrics);
  EXPECT_LT(recorded.calls, plain.calls) << "some steps are replayed";
  EXPECT_FALSE(console.has("evaluation")) << console.text();
}

TEST(RecordedEvaluation, RunsEagerlyIfTheStepItselfMovesWeights) {
  const Change change = [](TrainerOptions&, Evaluated& m) {
    m.on_validation_step = [](Evaluated& module, const at::Tensor&, int64_t batch_idx) {
      if (batch_idx == 0) module.head->weight.set_data(module.head->weight.detach().clone());
    };
  };
  const CapturedConsole console;
  const Outcome plain = fit(false, change), recorded = fit(true, change);
  EXPECT_EQ(plain.metrics, recorded.metrics);
  EXPECT_TRUE(console.has("The evaluation steps are not recorded, and run eagerly.")) << console.text();
}

struct Refusal {
  const char* name;
  std::function<void(Evaluated&, const at::Tensor&, int64_t)> act;
  const char* text;
};

TEST(RecordedEvaluation, ReportsWhatCannotBeRecordedAndRunsStepsEagerly) {
  std::vector<at::Tensor> kept;
  metrics::MeanMetric mean;
  double sum = 0;
  const std::vector<Refusal> refusals = {
      {"a number that is read", [&](Evaluated&, const at::Tensor& error, int64_t) { sum += error.item<double>(); },
       "aten::item reads a number of a tensor on the host"},
      {"a number that is logged", [](Evaluated& m, const at::Tensor&, int64_t) { m.log("number", 3.0); },
       "validation_step logs \"number\" from the host"},
      {"a list of outputs", [&](Evaluated&, const at::Tensor& error, int64_t) { kept.push_back(error * 2); },
       "validation_step keeps a tensor of 4 B of its batch, which the next replay would overwrite"},
      {"a metric", [&](Evaluated& m, const at::Tensor& error, int64_t) { mean(error), m.log("mean", mean); },
       "validation_step logs the metric \"mean\", which a recorded step would not do at each batch; update and log it"},
      {"a metric that is logged later", [&](Evaluated&, const at::Tensor& error, int64_t) { mean(error); },
       "the step updates a metric, which a recorded step would not do at each batch"},
      {"a different branch", [](Evaluated& m, const at::Tensor&, int64_t) { m.halved_from = 10; },
       "validation_step of batch 10 differs from the recorded step: aten::mul got"},
  };
  for (const Refusal& refusal : refusals) {
    const Change change = [&](TrainerOptions&, Evaluated& m) { m.on_validation_step = refusal.act; };
    const CapturedConsole console;
    const Outcome plain = validate(false, change);
    mean.reset();
    kept.clear();
    const Outcome recorded = validate(true, change);
    EXPECT_EQ(plain.metrics, recorded.metrics) << refusal.name;
    EXPECT_TRUE(console.has(std::string("TrainerOptions.record_steps: ") + refusal.text)) << refusal.name << "\n"
                                                                                          << console.text();
    EXPECT_TRUE(console.has(". The evaluation steps are not recorded, and run eagerly.")) << console.text();
    EXPECT_TRUE(kept.empty() || kept.size() == 24) << kept.size();
    EXPECT_TRUE(mean.update_count() == 0 || mean.update_count() == 24) << mean.update_count();
  }
}

void expect_same_kept(const std::vector<at::Tensor>& plain, const std::vector<at::Tensor>& recorded) {
  ASSERT_EQ(plain.size(), 20U);
  ASSERT_EQ(recorded.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(plain[i], recorded[i])) << "batch " << i;
}

TEST(RecordedEvaluation, WhatAStepKeepsHasTheNumbersOfItsBatch) {
  struct Kind {
    std::function<at::Tensor(const Batch&, const at::Tensor& prediction)> kept;
    const char* text;
  };
  const std::vector<Kind> kinds = {
      {[](const Batch& b, const at::Tensor&) { return b[1]; }, "predict_step keeps a tensor of its batch"},
      {[](const Batch& b, const at::Tensor&) { return b[1].detach(); }, "predict_step keeps a tensor of its batch"},
      {[](const Batch&, const at::Tensor& p) { return p; }, "predict_step keeps its prediction"},
      {[](const Batch&, const at::Tensor& p) { return p.view({-1}); }, "predict_step keeps its prediction"}};
  for (const Kind& kind : kinds) {
    std::vector<at::Tensor> kept[2];
    const CapturedConsole console;
    for (const bool record : {false, true}) {
      torch::manual_seed(3);
      Evaluated module;
      module.on_predict_step = [&](Evaluated& m, const Batch& batch, const at::Tensor& prediction) {
        m.kept.push_back(kind.kept(batch, prediction));
      };
      (void)Trainer(recording(record)).predict(module, {tiny_loader(80)});
      kept[record] = module.kept;
    }
    expect_same_kept(kept[0], kept[1]);
    EXPECT_TRUE(console.has(std::string("TrainerOptions.record_steps: ") + kind.text)) << console.text();
  }
}

TEST(RecordedEvaluation, ABatchOrAnOutputThatAValidationKeepsHasItsNumbers) {
  for (const bool keeps_output : {false, true}) {
    std::vector<at::Tensor> kept[2];
    const CapturedConsole console;
    for (const bool record : {false, true}) {
      const Change change = [&](TrainerOptions&, Evaluated& m) {
        m.on_validation_of = [&, record](Evaluated& module, const Batch& batch) {
          const at::Tensor output = module.outputs(batch);
          module.step_output("output", output);
          kept[record].push_back(keeps_output ? output : batch[1].detach());
        };
      };
      (void)validate(record, change, 80);
    }
    expect_same_kept(kept[0], kept[1]);
    EXPECT_TRUE(console.has(keeps_output ? "validation_step keeps the output \"output\""
                                         : "validation_step keeps a tensor of its batch"))
        << console.text();
  }
}

TEST(RecordedEvaluation, FollowsWhatHooksChangeBetweenTwoBatches) {
  const std::vector<std::function<void(Evaluated&, int64_t)>> changes = {
      [](Evaluated& m, int64_t batch_idx) {
        if (batch_idx == 13) m.wide->weight.set_data(m.wide->weight.detach() * 2);
      },
      [](Evaluated& m, int64_t batch_idx) { m.dropout->train(batch_idx >= 13 && batch_idx < 17); }};
  for (const auto& act : changes) {
    const Change change = [&](TrainerOptions&, Evaluated& m) { m.before_validation_batch = act; };
    const Outcome plain = validate(false, change), recorded = validate(true, change);
    EXPECT_EQ(plain.metrics, recorded.metrics);
    EXPECT_LT(recorded.calls, 24);
  }
}

TEST(RecordedEvaluation, AutoDecidesAfterTimingBothWays) {
  const Outcome plain = validate(false, nullptr, 800), decided = validate("auto", nullptr, 800);
  EXPECT_EQ(plain.metrics, decided.metrics);
  // Whichever is faster here: most steps were replayed, or most have run.
  EXPECT_TRUE(decided.calls < 40 || decided.calls > 160) << decided.calls;
}

TEST(RecordedEvaluation, IsNotMadeWhereStepsAreNotRecorded) {
  EXPECT_EQ(validate(true, [](TrainerOptions& o, Evaluated&) { o.strategy = "dp"; }).calls, 24);
}

}  // namespace
}  // namespace levin::recorded_evaluation_test
