#include "levin/callbacks/weight_averaging.h"

#include <gtest/gtest.h>

#include "callbacks/resume.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/stochastic_weight_averaging.h"
#include "support/captured_console.h"
#include "support/field_count.h"

namespace levin::weight_averaging_test {
namespace {

using namespace test;

// The tiny module's weight, (4), in float64.
at::Tensor weight_of(const TinyModule& module) {
  return module.layer->weight.detach().flatten().to(at::kDouble).clone();
}

// Trains for two epochs of 6 steps; what the weight was after each of them, and what the module ends with.
struct Trained {
  std::vector<at::Tensor> weights;
  at::Tensor last;
};

Trained train(const std::shared_ptr<Callback>& callback) {
  Trained trained;
  TinyModule module;
  Trainer trainer(quiet(
      2, {callback,
          LambdaCallback({.on_train_batch_end = [&](Trainer&, LightningModule&, const at::Tensor&, const Batch&,
                                                    int64_t) { trained.weights.push_back(weight_of(module)); }})}));
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  trained.last = weight_of(module);
  return trained;
}

void expect_close(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_TRUE(torch::allclose(got, want, 1e-5, 1e-7)) << got << want;
}

TEST(WeightAveraging, EndsWithTheMeanOfTheWeightsAfterEveryStep) {
  auto callback = std::make_shared<WeightAveraging>();
  const Trained trained = train(callback);
  ASSERT_EQ(trained.weights.size(), 12U);
  EXPECT_EQ(callback->n_averaged(), 12);
  expect_close(trained.last, torch::stack(trained.weights).mean(0));
}

TEST(WeightAveraging, AsksASubclassWhenToUpdate) {
  struct AfterEpochs final : WeightAveraging {
    bool should_update(std::optional<int64_t> step_idx, std::optional<int64_t> epoch_idx) const override {
      asked.emplace_back(step_idx, epoch_idx);
      return epoch_idx.has_value();
    }
    mutable std::vector<std::pair<std::optional<int64_t>, std::optional<int64_t>>> asked = {};
  };
  auto callback = std::make_shared<AfterEpochs>();
  const Trained trained = train(callback);
  expect_close(trained.last, (trained.weights[5] + trained.weights[11]) / 2);
  ASSERT_EQ(callback->asked.size(), 14U);
  EXPECT_EQ(callback->asked[0], std::pair(std::optional<int64_t>(0), std::optional<int64_t>()));
  EXPECT_EQ(callback->asked[6], std::pair(std::optional<int64_t>(), std::optional<int64_t>(0)));
  EXPECT_EQ(callback->asked[13], std::pair(std::optional<int64_t>(), std::optional<int64_t>(1)));
}

TEST(WeightAveraging, CountsOptimizerStepsAndNotBatches) {
  auto callback = std::make_shared<WeightAveraging>();
  TinyModule module;
  TrainerOptions options = quiet(2, {callback});
  options.accumulate_grad_batches = 4;  // 6 batches: 2 steps an epoch
  Trainer(options).fit(module, tiny_loader(24));
  EXPECT_EQ(callback->n_averaged(), 4);
}

TEST(EMAWeightAveraging, FollowsItsFormula) {
  const Trained trained = train(std::make_shared<EMAWeightAveraging>(EMAWeightAveragingOptions{.decay = 0.9}));
  at::Tensor average = trained.weights[0];
  for (size_t i = 1; i < 12; ++i) average = 0.9 * average + 0.1 * trained.weights[i];
  expect_close(trained.last, average);
}

// loss = sum(weight) and SGD: the weight after step t is w0 - lr t. The average lags by
// lr d (1 - d^(T-1)) / (1 - d).
TEST(EMAWeightAveraging, LagsBehindASteadyMovementByTheClosedForm) {
  struct Steady : TinyModule {
    at::Tensor training_step(const Batch&, int64_t) override { return layer->weight.sum(); }
  } module;
  const at::Tensor first = weight_of(module);
  TrainerOptions options = quiet(10, EMAWeightAveraging({.decay = 0.8}));
  options.precision = "64-true";
  module.make_optimizers = [](TinyModule& m) { return SGD({m.layer->weight}, {.lr = 0.1}); };
  Trainer(options).fit(module, tiny_loader(24));
  const double lag = 0.1 * 0.8 * (1 - std::pow(0.8, 59)) / 0.2;
  const at::Tensor want = first - 0.1 * 60 + lag;
  EXPECT_TRUE(torch::allclose(weight_of(module), want, 0, 1e-12)) << weight_of(module) << want;
}

TEST(EMAWeightAveraging, StartsAndSkipsStepsAsConfiguredAndUpdatesAfterEpochs) {
  const auto updates = [](EMAWeightAveragingOptions options) {
    const EMAWeightAveraging callback(options);
    std::vector<int64_t> steps;
    for (int64_t step = 0; step < 8; ++step) {
      if (callback.should_update(step, std::nullopt)) steps.push_back(step);
    }
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      if (callback.should_update(std::nullopt, epoch)) steps.push_back(100 + epoch);
    }
    return steps;
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(updates({}), (Steps{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(updates({.update_every_n_steps = 3}), (Steps{0, 3, 6}));
  EXPECT_EQ(updates({.update_every_n_steps = 2, .update_starting_at_step = 3}), (Steps{4, 6}));
  EXPECT_EQ(updates({.update_every_n_steps = 0, .update_starting_at_epoch = 2}), (Steps{102, 103}));
}

TEST(EMAWeightAveraging, ValidatesWithTheAverageAndTrainsOnWithTheWeights) {
  auto callback = std::make_shared<EMAWeightAveraging>(EMAWeightAveragingOptions{.decay = 0.5});
  TinyModule module;
  std::vector<at::Tensor> trained, before, validated, after;
  const auto note = [&](std::vector<at::Tensor>& list) {
    return [&](Trainer& trainer, LightningModule&) {
      if (!trainer.sanity_checking()) list.push_back(weight_of(module));
    };
  };
  Trainer trainer(quiet(
      1, {LambdaCallback({.on_train_batch_end = [&](Trainer&, LightningModule&, const at::Tensor&, const Batch&,
                                                    int64_t) { trained.push_back(weight_of(module)); },
                          .on_validation_start = note(before)}),
          callback, LambdaCallback({.on_validation_end = note(after), .on_validation_epoch_start = note(validated)})}));
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  at::Tensor average = trained[0];
  for (size_t i = 1; i < 6; ++i) average = (average + trained[i]) / 2;
  ASSERT_EQ(validated.size(), 1U);
  expect_close(validated[0], average);
  EXPECT_TRUE(before[0].equal(trained[5]));
  EXPECT_TRUE(after[0].equal(trained[5]));
  EXPECT_FALSE(validated[0].equal(trained[5]));
}

TEST(EMAWeightAveraging, LeavesTheWeightsAloneUntilItsFirstUpdate) {
  const Trained without = train(std::make_shared<LambdaCallback>(LambdaHooks{}));
  const Trained with =
      train(std::make_shared<EMAWeightAveraging>(EMAWeightAveragingOptions{.update_starting_at_step = 1000}));
  EXPECT_TRUE(with.last.equal(without.last));
}

TEST(EMAWeightAveraging, GivesTheWeightsBackWhenAValidationFails) {
  struct Failing : TinyModule {
    void validation_step(const Batch&, int64_t) override {
      if (global_step() > 0) throw Error("no more");
    }
  } module;
  at::Tensor trained;
  Trainer trainer(
      quiet(1, {EMAWeightAveraging({.decay = 0.5}),
                LambdaCallback({.on_train_batch_end = [&](Trainer&, LightningModule&, const at::Tensor&, const Batch&,
                                                          int64_t) { trained = weight_of(module); }})}));
  EXPECT_EQ(error_of([&] { trainer.fit(module, tiny_loader(24), tiny_loader(16)); }),
            "validation_step, epoch 0, batch 0, dataloader 0, global step 6: no more");
  EXPECT_TRUE(weight_of(module).equal(trained));
}

// ---- buffers and number formats

struct Counting : TinyModule {
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    steps.add_(1);
    scale.mul_(2);
    return TinyModule::training_step(batch, batch_idx);
  }
  at::Tensor steps = register_buffer("steps", torch::zeros({}, at::kLong));
  at::Tensor scale = register_buffer("scale", torch::ones({}));
};

TEST(WeightAveraging, AveragesBuffersOfFloatingPointAndCopiesTheOthers) {
  Counting module;
  TrainerOptions options = quiet(1, WeightAveraging());
  Trainer(options).fit(module, tiny_loader(12));  // 3 steps
  EXPECT_EQ(module.steps.item<int64_t>(), 3);
  EXPECT_FLOAT_EQ(module.scale.item<float>(), (2 + 4 + 8) / 3.0F);
  Counting other;
  options = quiet(1, WeightAveraging({.use_buffers = false}));
  Trainer(options).fit(other, tiny_loader(12));
  EXPECT_EQ(other.scale.item<float>(), 8);
}

// In bfloat16 0.001 of the way to a new value is nothing: an average kept in it would stay near 1.
TEST(EMAWeightAveraging, KeepsTheAverageOf16BitWeightsInFloat32) {
  const TemporaryFolder folder;
  struct Steady : TinyModule {
    at::Tensor training_step(const Batch&, int64_t) override { return layer->weight.sum(); }
  } module;
  module.layer->weight.data().fill_(1);
  module.make_optimizers = [](TinyModule& m) { return SGD({m.layer->weight}, {.lr = 1.0 / 32}); };
  TrainerOptions options = quiet(10, {EMAWeightAveraging({.decay = 0.999}),
                                      LambdaCallback({.on_train_epoch_end = [&](Trainer& trainer, LightningModule&) {
                                        trainer.save_checkpoint(folder / "a.ckpt");
                                      }})});
  options.precision = "bf16-true";
  Trainer(options).fit(module, tiny_loader(24));  // 60 steps, each exact in bfloat16: the weight ends at 1 - 60 / 32
  const at::Tensor average = read_checkpoint(folder / "a.ckpt").tensor("model.layer.weight");
  EXPECT_EQ(average.scalar_type(), at::kFloat);
  const double lag = 0.999 * (1 - std::pow(0.999, 59)) / 0.001 / 32;
  EXPECT_NEAR(average[0][0].item<double>(), 1 - 60.0 / 32 + lag, 1e-4);
  EXPECT_EQ(module.layer->weight.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(module.layer->weight.equal(average.to(at::kBFloat16)));
}

// A stop in a validation saves while the average is in the module, whose weights have 16 bits.
TEST(WeightAveraging, SavesTheAverageOf16BitWeightsInFloat32AlsoInAValidation) {
  const TemporaryFolder folder;
  TinyModule module;
  LambdaHooks hooks;
  hooks.on_validation_batch_start = [&](Trainer& trainer, LightningModule&, const Batch&, int64_t, int64_t) {
    trainer.save_checkpoint(folder / "validation.ckpt");
  };
  hooks.on_train_epoch_end = [&](Trainer& trainer, LightningModule&) { trainer.save_checkpoint(folder / "end.ckpt"); };
  TrainerOptions options = quiet(1, {std::make_shared<WeightAveraging>(), std::make_shared<LambdaCallback>(hooks)});
  options.precision = "bf16-true";
  Trainer(options).fit(module, tiny_loader(24), tiny_loader(16));
  const State inside = read_checkpoint(folder / "validation.ckpt"), after = read_checkpoint(folder / "end.ckpt");
  EXPECT_EQ(inside.tensor("model.layer.weight").scalar_type(), at::kFloat);
  EXPECT_TRUE(inside.tensor("model.layer.weight").equal(after.tensor("model.layer.weight")));
  EXPECT_TRUE(inside.tensor("current_model.layer.weight").equal(after.tensor("current_model.layer.weight")));
  EXPECT_EQ(inside.get<int64_t>("n_averaged"), 6);
}

// ---- checkpoints

TEST(EMAWeightAveraging, SavesTheAverageAsTheModelAndTheWeightsNextToIt) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.ckpt";
  TinyModule module;
  at::Tensor trained, validated;
  Trainer trainer(quiet(1, {EMAWeightAveraging({.decay = 0.5}),
                            LambdaCallback({.on_train_epoch_end =
                                                [&](Trainer& t, LightningModule&) {
                                                  trained = weight_of(module);
                                                  t.save_checkpoint(path);
                                                  t.save_checkpoint(folder / "weights.ckpt", true);
                                                },
                                            .on_validation_epoch_start =
                                                [&](Trainer&, LightningModule&) { validated = weight_of(module); }})}));
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  const State saved = read_checkpoint(path);
  expect_close(saved.tensor("model.layer.weight").flatten().to(at::kDouble), validated);
  EXPECT_TRUE(saved.tensor("current_model.layer.weight").flatten().to(at::kDouble).equal(trained));
  const State weights = read_checkpoint(folder / "weights.ckpt");
  EXPECT_TRUE(weights.tensor("model.layer.weight").equal(saved.tensor("model.layer.weight")));
  EXPECT_FALSE(weights.tensors.contains("current_model.layer.weight"));
  // What evaluates from the file uses the average, with the callback and without.
  for (const Callbacks& callbacks : {Callbacks{}, Callbacks{EMAWeightAveraging()}}) {
    TinyModule fresh;
    Trainer(quiet(1, callbacks)).test(fresh, tiny_loader(16), path);
    expect_close(weight_of(fresh), validated);
  }
}

ResumeTest averaging(std::function<std::shared_ptr<Callback>()> callback) {
  return {.callback = std::move(callback), .optimizers = [](TinyModule& m) {
            return OptimizerConfig(AdamW(m.parameters(), {.lr = 0.02}), StepLR({.step_size = 2, .gamma = 0.5}));
          }};
}

TEST(EMAWeightAveraging, ResumesBitwiseIdentically) {
  const ResumeTest test = averaging([] {
    return std::make_shared<EMAWeightAveraging>(EMAWeightAveragingOptions{
        .decay = 0.9, .update_every_n_steps = 2, .update_starting_at_step = 4, .update_starting_at_epoch = 1});
  });
  test.cut_after(3);   // before the first update
  test.cut_after(12);  // at the end of an epoch
  test.cut_after(15);  // within one
}

TEST(WeightAveraging, ResumesBitwiseIdentically) {
  averaging([] {
    return std::make_shared<WeightAveraging>(WeightAveragingOptions{.use_buffers = false});
  }).cut_after(15);
  ResumeTest half = averaging([] { return std::make_shared<WeightAveraging>(); });
  half.change = [](TrainerOptions& options) { options.precision = "bf16-true"; };
  half.cut_after(12);
}

TEST(WeightAveraging, AFinishedRunContinuesAsIfItHadNotEnded) {
  const TemporaryFolder folder;
  const auto run = [&](int64_t epochs, const std::string& from, const std::string& to) {
    TinyModule module;
    Trainer trainer(quiet(epochs, WeightAveraging()));
    trainer.fit(module, tiny_loader(24), tiny_loader(16), from);
    if (!to.empty()) trainer.save_checkpoint(to);
    return weight_of(module);
  };
  const at::Tensor whole = run(4, "", "");
  static_cast<void>(run(2, "", folder / "two.ckpt"));
  EXPECT_TRUE(run(4, folder / "two.ckpt", "").equal(whole));
}

TEST(WeightAveraging, BeginsAnewAfterARunWithoutIt) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  TinyModule module;
  Trainer first(quiet(1, {}));
  first.fit(module, tiny_loader(24));
  first.save_checkpoint(folder / "a.ckpt");
  auto callback = std::make_shared<WeightAveraging>();
  Trainer(quiet(2, {callback})).fit(module, tiny_loader(24), {}, folder / "a.ckpt");
  EXPECT_EQ(callback->n_averaged(), 6);
  EXPECT_TRUE(console.has("a.ckpt was saved without it. The average starts from scratch.")) << console.text();
}

// ---- errors and options

TEST(WeightAveraging, RefusesASecondAverage) {
  TinyModule module;
  Trainer trainer(quiet(1, {EMAWeightAveraging(), StochasticWeightAveraging({.swa_lrs = 0.1})}));
  const std::string error = error_of([&] { trainer.fit(module, tiny_loader(8)); });
  EXPECT_TRUE(has(error, "EMAWeightAveraging and StochasticWeightAveraging") && has(error, "Keep one")) << error;
}

TEST(WeightAveraging, RefusesOptionsOutOfRange) {
  std::string error = error_of([] {
    EMAWeightAveraging({.device = "gpu7", .decay = 1.5, .update_every_n_steps = -1, .update_starting_at_step = -2});
  });
  EXPECT_TRUE(has(error, "device: must be a device, such as cpu or cuda:0, got \"gpu7\"") && has(error, "1.5") &&
              has(error, "update_every_n_steps") && has(error, "update_starting_at_step: must be >= 0, got -2"))
      << error;
  error = error_of([] { WeightAveraging({.device = ""}); });
  EXPECT_TRUE(has(error, "WeightAveragingOptions.device")) << error;
}

TEST(WeightAveraging, NamesAnAverageThatDoesNotFit) {
  const TemporaryFolder folder;
  TinyModule module;
  Trainer trainer(quiet(1, WeightAveraging()));
  trainer.fit(module, tiny_loader(24));
  trainer.save_checkpoint(folder / "a.ckpt");
  State damaged = read_checkpoint(folder / "a.ckpt");
  damaged.tensors.erase("current_model.layer.bias");
  write_checkpoint(folder / "b.ckpt", damaged);
  const std::string error =
      error_of([&] { Trainer(quiet(2, WeightAveraging())).fit(module, tiny_loader(24), {}, folder / "b.ckpt"); });
  EXPECT_TRUE(has(error, "\"layer.bias\"")) << error;
}

TEST(WeightAveraging, ListsEveryOption) {
  EXPECT_EQ(testing::field_count<WeightAveragingOptions>(), field_names<WeightAveragingOptions>().size());
  EXPECT_EQ(testing::field_count<EMAWeightAveragingOptions>(), field_names<EMAWeightAveragingOptions>().size());
  EXPECT_EQ(testing::field_count<StochasticWeightAveragingOptions>(),
            field_names<StochasticWeightAveragingOptions>().size());
}

}  // namespace
}  // namespace levin::weight_averaging_test
