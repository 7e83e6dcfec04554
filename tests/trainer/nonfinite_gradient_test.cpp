// What a run does about a finite loss whose gradient is nan or inf.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/sam.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::nonfinite_gradient_test {
namespace {

using namespace test;

constexpr int64_t kBatches = 24;

// A batch of inputs 0 has the loss 0, with a gradient of 0 / 0. The parameters change in every other batch.
class Root : public LightningModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor z = weight.square() * batch[0] + 0 * bias;
    return z.sqrt().mean();
  }
  OptimizerConfig configure_optimizers() override {
    return make_optimizer ? make_optimizer(*this) : SGD(parameters(), {.lr = 0.01, .momentum = 0.9});
  }
  at::Tensor weight = register_parameter("weight", torch::full({4}, 2.0));
  at::Tensor bias = register_parameter("bias", torch::ones({1}));
  std::function<OptimizerConfig(Root&)> make_optimizer = nullptr;
};

// (1, 4) per batch; the values of `bad` are 0.
std::shared_ptr<TensorLoader> data(const std::set<int64_t>& bad, int64_t batches = kBatches) {
  at::Tensor inputs = torch::arange(1, 4 * batches + 1).remainder(7).to(at::kFloat).view({batches, 4}) + 1;
  for (const int64_t batch : bad) inputs[batch].zero_();
  return std::make_shared<TensorLoader>(std::vector<at::Tensor>{inputs}, 1);
}

struct Outcome {
  std::string error;
  at::Tensor weight;
  int64_t steps = 0;
};

using Change = std::function<void(TrainerOptions&, Root&)>;

Outcome fit(const std::set<int64_t>& bad, const Change& change = nullptr, int64_t batches = kBatches) {
  Root module;
  TrainerOptions options = quiet(1, {});
  if (change) change(options, module);
  Trainer trainer(options);
  const std::string error = error_of<NonFiniteLossError>([&] { trainer.fit(module, data(bad, batches)); });
  return {error, module.weight.detach(), trainer.global_step()};
}

Change skipping(const Change& change = nullptr) {
  return [change](TrainerOptions& options, Root& module) {
    options.nonfinite_loss = NonFiniteLoss::skip;
    if (change) change(options, module);
  };
}

// Returns a change that leaves these batches out of the run.
Change without(const std::set<int64_t>& batches, const Change& change = nullptr) {
  return [batches, change](TrainerOptions& options, Root& module) {
    if (change) change(options, module);
    options.callbacks.push_back(
        LambdaCallback({.on_train_batch_start = [batches](Trainer& trainer, LightningModule&, const Batch&, int64_t b) {
          if (batches.contains(b)) trainer.skip_batch();
        }}));
  };
}

// A run that skips the update of batch 5 ends as one without that batch.
void expect_skipped(const Change& change) {
  const CapturedConsole console;
  const Outcome outcome = fit({5}, skipping(change));
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.steps, kBatches - 1);
  EXPECT_TRUE(console.has("in epoch 0, batch 5, global step 5, although the loss is finite. Its update is skipped."))
      << console.text();
  EXPECT_TRUE(torch::equal(outcome.weight, fit({}, without({5}, change)).weight)) << outcome.weight;
  EXPECT_TRUE(outcome.weight.isfinite().all().item<bool>());
}

// Reliability: nonfinite_gradient.
TEST(NonFiniteGradient, StopsBeforeTheUpdateAndNamesTheParameterAndTheBatch) {
  const Outcome outcome = fit({5});
  EXPECT_TRUE(holds(outcome.error, {"backward: the gradient of weight is nan in epoch 0, batch 5, global step 5",
                                    "although the loss is finite", "Nothing was updated with it", "detect_anomaly",
                                    "TrainerOptions.nonfinite_loss"}));
  EXPECT_TRUE(torch::equal(outcome.weight, fit({}, nullptr, 5).weight));
}

TEST(NonFiniteGradient, StopsInTheLastBatchToo) {
  EXPECT_TRUE(has(fit({kBatches - 1}).error, "the gradient of weight is nan in epoch 0, batch 23"));
}

TEST(NonFiniteGradient, OneInfiniteElementOfManyIsFound) {
  struct Hooked : Root {
    Hooked(at::ScalarType type, int64_t size) { wide = register_parameter("wide", torch::ones({size}, type)); }
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      at::Tensor used = wide * 1;
      if (batch_idx == 3) {
        used.register_hook([](const at::Tensor& gradient) {
          at::Tensor changed = gradient.clone();
          changed[-2] = -INFINITY;
          return changed;
        });
      }
      return Root::training_step(batch, batch_idx) + used.to(at::kFloat).mean();
    }
    at::Tensor wide;
  };
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {2, 37, 1 << 19}) {
      Hooked module(type, size);
      TrainerOptions options = quiet(1, {});
      const std::string error = error_of<NonFiniteLossError>([&] { Trainer(options).fit(module, data({})); });
      EXPECT_TRUE(has(error, "the gradient of wide is inf in epoch 0, batch 3")) << type << ' ' << size << error;
    }
  }
}

TEST(NonFiniteGradient, TheLargestFiniteGradientsAreFinite) {
  struct Large : TinyModule {
    at::Tensor training_step(const Batch&, int64_t) override {
      return (layer->weight * std::numeric_limits<float>::max()).sum() * 0.5 +
             (layer->bias * std::numeric_limits<float>::denorm_min()).sum();
    }
    OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 1e-40}); }
  } module;
  EXPECT_EQ(error_of([&] { Trainer(quiet(1, {})).fit(module, tiny_loader(24)); }), "");
}

TEST(NonFiniteGradient, SkipLeavesOutTheUpdate) {
  expect_skipped(nullptr);
}

TEST(NonFiniteGradient, SkipComesBeforeClipping) {
  for (const ClipAlgorithm algorithm : {ClipAlgorithm::norm, ClipAlgorithm::value}) {
    expect_skipped([algorithm](TrainerOptions& options, Root&) {
      options.gradient_clip_val = 0.5;
      options.gradient_clip_algorithm = algorithm;
    });
  }
}

TEST(NonFiniteGradient, SkipInOtherPrecisions) {
  for (const char* precision : {"bf16-mixed", "bf16-true", "64-true"}) {
    SCOPED_TRACE(precision);
    expect_skipped([precision](TrainerOptions& options, Root&) { options.precision = precision; });
  }
}

TEST(NonFiniteGradient, SkipLeavesOutAWholeWindowAndNamesItsBatches) {
  const Change accumulating = [](TrainerOptions& options, Root&) { options.accumulate_grad_batches = 3; };
  const CapturedConsole console;
  const Outcome outcome = fit({4}, skipping(accumulating));
  EXPECT_EQ(outcome.steps, kBatches / 3 - 1);
  EXPECT_TRUE(console.has("nan in epoch 0, one of batches 3 to 5, global step 1")) << console.text();
  EXPECT_TRUE(torch::equal(outcome.weight, fit({}, without({3, 4, 5}, accumulating)).weight));
}

TEST(NonFiniteGradient, SkipWithMicroBatches) {
  const CapturedConsole console;
  Root module;
  TrainerOptions options = quiet(1, {});
  options.nonfinite_loss = NonFiniteLoss::skip;
  options.micro_batch_size = 2;
  at::Tensor inputs = torch::ones({16, 4});
  inputs[5].zero_();
  Trainer trainer(options);
  trainer.fit(module, std::make_shared<TensorLoader>(std::vector<at::Tensor>{inputs}, 4));
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_TRUE(console.has("batch 1, global step 1")) << console.text();
  EXPECT_TRUE(module.weight.isfinite().all().item<bool>());
}

TEST(NonFiniteGradient, RollbackRestoresTheNewestCheckpoint) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  const Outcome outcome = fit({5}, [&](TrainerOptions& options, Root&) {
    options = quiet(1, {ModelCheckpoint({.dirpath = folder.path(), .save_top_k = -1, .every_n_train_steps = 4})});
    options.nonfinite_loss = NonFiniteLoss::rollback;
  });
  EXPECT_EQ(outcome.error, "");
  EXPECT_TRUE(console.has("epoch=0-step=4.ckpt") && console.has("the gradient of weight is nan")) << console.text();
  EXPECT_TRUE(torch::equal(outcome.weight, fit({}, without({4, 5})).weight));  // batch 4 was undone
}

TEST(NonFiniteGradient, IgnoreTrainsOnAsLightningDoes) {
  const Outcome outcome = fit({5}, [](TrainerOptions& o, Root&) { o.nonfinite_loss = NonFiniteLoss::ignore; });
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.steps, kBatches);
  EXPECT_TRUE(outcome.weight.isnan().all().item<bool>());
}

void expect_finite(const std::string& checkpoint) {
  for (const auto& [key, tensor] : load_checkpoint(checkpoint).tensors) {
    if (tensor.is_floating_point()) {
      EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << checkpoint << ": " << key;
    }
  }
}

// Under each policy but `ignore`, also of a batch that is the last one.
TEST(NonFiniteGradient, NoCheckpointHoldsIt) {
  for (const NonFiniteLoss policy : {NonFiniteLoss::stop, NonFiniteLoss::skip, NonFiniteLoss::rollback}) {
    for (const int64_t accumulate : {1, 2}) {
      const TemporaryFolder folder;
      const CapturedConsole console;
      (void)fit({5, kBatches - 1}, [&](TrainerOptions& options, Root& module) {
        options = quiet(1, {ModelCheckpoint({.dirpath = folder.path(),
                                             .save_last = true,
                                             .save_top_k = -1,
                                             .save_on_exception = true,
                                             .every_n_train_steps = 1})});
        options.nonfinite_loss = policy;
        options.accumulate_grad_batches = accumulate;
        module.make_optimizer = [](Root& m) { return AdamW(m.parameters(), {.lr = 0.01}); };
      });
      EXPECT_FALSE(folder.names().empty());
      for (const std::string& name : folder.names()) {
        if (name.ends_with(".ckpt")) expect_finite(folder / name);
      }
    }
  }
}

// Batch 4 is in the window of batches 4 to 7; a checkpoint is saved after batch 5.
TEST(NonFiniteGradient, NorDoesACheckpointInsideItsWindow) {
  const TemporaryFolder folder;
  const std::string path = folder / "inside.ckpt";
  const auto run = [&](NonFiniteLoss policy, const std::string& from) {
    Root module;
    TrainerOptions options =
        quiet(1, {LambdaCallback({.on_train_batch_end = [&](Trainer& trainer, LightningModule&, const at::Tensor&,
                                                            const Batch&, int64_t b) {
                if (b == 5 && from.empty()) trainer.save_checkpoint(path);
              }})});
    options.accumulate_grad_batches = 4;
    options.nonfinite_loss = policy;
    Trainer trainer(options);
    const std::string error = error_of<NonFiniteLossError>([&] { trainer.fit(module, data({4}), {}, from); });
    EXPECT_EQ(trainer.global_step(), error.empty() ? kBatches / 4 - 1 : 1);
    return std::pair(error, module.weight.detach());
  };
  EXPECT_TRUE(has(run(NonFiniteLoss::stop, "").first, "nan in epoch 0, one of batches 4 to 5, global step 1"));
  const CapturedConsole console;
  const at::Tensor whole = run(NonFiniteLoss::skip, "").second;
  expect_finite(path);
  EXPECT_TRUE(torch::equal(run(NonFiniteLoss::skip, path).second, whole));
}

// A recorded step decides in its operators.
// Reliability: nonfinite_gradient.
TEST(NonFiniteGradient, RecordedStepsSkipIt) {
  const std::vector<std::function<OptimizerConfig(Root&)>> optimizers = {
      nullptr, [](Root& m) { return AdamW(m.parameters(), {.lr = 0.01}); },
      [](Root& m) { return RMSprop(m.parameters(), {.lr = 0.01}); }};  // the last one's update is the host's
  for (size_t k = 0; k < optimizers.size(); ++k) {
    for (const double clip : {0.0, 0.5}) {
      SCOPED_TRACE(std::to_string(k) + ", clip " + std::to_string(clip));
      const Change change = [&](TrainerOptions& options, Root& module) {
        module.make_optimizer = optimizers[k];
        options.gradient_clip_val = clip;
      };
      const Change recording = [&](TrainerOptions& options, Root& module) {
        change(options, module);
        options.record_steps = true;
      };
      const CapturedConsole console;
      const Outcome plain = fit({5, 17}, skipping(change)), recorded = fit({5, 17}, skipping(recording));
      EXPECT_TRUE(console.has("the gradient of weight is nan in epoch 0, batch 17, global step 16, although"))
          << console.text();
      EXPECT_FALSE(console.has("differs from the recorded step")) << console.text();
      EXPECT_EQ(recorded.steps, kBatches - 2);
      EXPECT_TRUE(torch::equal(plain.weight, recorded.weight)) << plain.weight << recorded.weight;
      EXPECT_TRUE(has(fit({17}, recording).error, "the gradient of weight is nan in epoch 0, batch 17"));
      EXPECT_TRUE(has(fit({kBatches - 1}, recording).error, "the gradient of weight is nan in epoch 0, batch 23"));
    }
  }
}

TEST(NonFiniteGradient, RecordedWindowsSkipIt) {
  const Change recording = [](TrainerOptions& options, Root&) {
    options.record_steps = true;
    options.accumulate_grad_batches = 2;
  };
  const CapturedConsole console;
  const Outcome recorded = fit({16}, skipping(recording));
  EXPECT_TRUE(console.has("one of batches 16 to 17, global step 8")) << console.text();
  EXPECT_EQ(recorded.steps, kBatches / 2 - 1);
  EXPECT_TRUE(
      torch::equal(recorded.weight,
                   fit({}, without({16, 17}, [](TrainerOptions& o, Root&) { o.accumulate_grad_batches = 2; })).weight));
}

TEST(NonFiniteGradient, OptimizersWithAClosureGiveUpTheStep) {
  expect_skipped([](TrainerOptions&, Root& module) {
    module.make_optimizer = [](Root& m) { return LBFGS(m.parameters(), {.lr = 0.01, .max_iter = 3}); };
  });
  expect_skipped([](TrainerOptions&, Root& module) {
    module.make_optimizer = [](Root& m) { return SAM(SGD(m.parameters(), {.lr = 0.01})); };
  });
}

// The gradient, or the loss, is nan where the second evaluation looks.
TEST(NonFiniteGradient, ALaterEvaluationLeavesTheParametersAsTheyWere) {
  struct Later : Root {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = (weight * batch[0] - 1).square().mean() + 0 * bias.sum();
      if (batch_idx != 5 || ++evaluations != 2) return loss;
      return of_loss ? loss * NAN : loss + (0 * weight).sqrt().sum();
    }
    int64_t evaluations = 0;
    bool of_loss = false;
  };
  const std::vector<std::function<OptimizerConfig(Root&)>> optimizers = {
      [](Root& m) { return SAM(SGD(m.parameters(), {.lr = 0.01, .momentum = 0.9})); },
      [](Root& m) { return LBFGS(m.parameters(), {.lr = 0.01, .max_iter = 3}); },
      [](Root& m) { return LBFGS(m.parameters(), {.max_iter = 3, .line_search_fn = LineSearch::strong_wolfe}); }};
  for (size_t k = 0; k < optimizers.size(); ++k) {
    for (const bool of_loss : {false, true}) {
      if (of_loss && k == 2) continue;  // a trial point of a line search may have any loss
      SCOPED_TRACE(std::to_string(k) + (of_loss ? ", the loss" : ", the gradient"));
      const CapturedConsole console;
      Later module;
      module.of_loss = of_loss;
      module.make_optimizer = optimizers[k];
      at::Tensor before, after;
      TrainerOptions options =
          quiet(1, {LambdaCallback({.on_train_batch_start =
                                        [&](Trainer&, LightningModule&, const Batch&, int64_t b) {
                                          if (b == 5) before = module.weight.detach().clone();
                                        },
                                    .on_train_batch_end =
                                        [&](Trainer&, LightningModule&, const at::Tensor&, const Batch&, int64_t b) {
                                          if (b == 5) after = module.weight.detach().clone();
                                        }})});
      options.nonfinite_loss = NonFiniteLoss::skip;
      Trainer trainer(options);
      trainer.fit(module, data({}));
      EXPECT_TRUE(console.has(of_loss ? "the loss is nan in epoch 0, batch 5" : "the gradient of weight is nan in"))
          << console.text();
      EXPECT_TRUE(torch::equal(before, after));
      EXPECT_EQ(trainer.global_step(), kBatches - 1);
      EXPECT_TRUE(module.weight.isfinite().all().item<bool>());
    }
  }
}

// A later evaluation of the bad batch is nan: the run, with the state of LBFGS, continues as a run without that batch.
TEST(NonFiniteGradient, ALaterEvaluationLeavesTheOptimizerAsItWas) {
  struct Later : Root {
    at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
      const at::Tensor loss = (weight * batch[0] - 1).square().mean() + 0 * bias.sum();
      return batch_idx != bad || ++evaluations != 2 ? loss : loss + (0 * weight).sqrt().sum();
    }
    int64_t evaluations = 0, bad = -1;
  };
  const std::vector<std::function<OptimizerConfig(Root&)>> optimizers = {
      [](Root& m) { return SAM(SGD(m.parameters(), {.lr = 0.01, .momentum = 0.9})); },
      [](Root& m) { return LBFGS(m.parameters(), {.lr = 0.01, .max_iter = 3}); },
      [](Root& m) { return LBFGS(m.parameters(), {.max_iter = 3, .line_search_fn = LineSearch::strong_wolfe}); },
      [](Root& m) { return torch::optim::LBFGS(m.parameters(), torch::optim::LBFGSOptions(0.01).max_iter(3)); }};
  for (size_t k = 0; k < optimizers.size(); ++k) {
    for (const int64_t bad : {0, 5}) {
      SCOPED_TRACE(std::to_string(k) + ", batch " + std::to_string(bad));
      const CapturedConsole console;
      const auto end_of = [&](bool skips) {
        Later module;
        module.make_optimizer = optimizers[k];
        TrainerOptions options = quiet(1, {});
        (skips ? skipping([&](TrainerOptions&, Root&) { module.bad = bad; }) : without({bad}))(options, module);
        Trainer(options).fit(module, data({}));
        return module.weight.detach();
      };
      EXPECT_TRUE(torch::equal(end_of(true), end_of(false)));
      EXPECT_TRUE(console.has("Its update is skipped")) << console.text();
    }
  }
}

// Code of the user between the judgement of the gradients and the update.
struct Spoils : Root {
  void on_before_optimizer_step(Optimizer&) override {
    if (in_hook && bad.contains(trainer().seen_batches())) spoil();
  }
  void configure_gradient_clipping(Optimizer& optimizer, double clip_val, ClipAlgorithm algorithm) override {
    if (!in_hook && bad.contains(trainer().seen_batches())) return spoil();
    LightningModule::configure_gradient_clipping(optimizer, clip_val, algorithm);
  }
  void spoil() { weight.mutable_grad() = weight.grad() / 0.0; }
  bool in_hook = true;
  std::set<int64_t> bad = {};
};

TEST(NonFiniteGradient, OneThatAHookOrClippingMakesIsSkippedToo) {
  const std::vector<Change> changes = {nullptr, [](TrainerOptions& options, Root&) { options.record_steps = true; },
                                       [](TrainerOptions& options, Root&) { options.gradient_clip_val = 0.5; },
                                       [](TrainerOptions&, Root& module) {
                                         module.make_optimizer = [](Root& m) {
                                           return LBFGS(m.parameters(), {.lr = 0.01, .max_iter = 3});
                                         };
                                       }};
  for (size_t k = 0; k < changes.size(); ++k) {
    for (const bool in_hook : {true, false}) {
      SCOPED_TRACE(std::to_string(k) + (in_hook ? ", the hook" : ", clipping"));
      const CapturedConsole console;
      const auto end_of = [&](const Change& way, const std::set<int64_t>& bad) {
        Spoils module;
        module.in_hook = in_hook;
        module.bad = bad;
        TrainerOptions options = quiet(1, {});
        way(options, module);
        Trainer trainer(options);
        trainer.fit(module, data({}));
        if (!bad.empty()) {
          EXPECT_EQ(trainer.global_step(), kBatches - 2);
        }
        return module.weight.detach();
      };
      EXPECT_TRUE(torch::equal(end_of(skipping(changes[k]), {5, kBatches - 1}),
                               end_of(without({5, kBatches - 1}, k == 1 ? nullptr : changes[k]), {})));
      EXPECT_TRUE(console.has("on_before_optimizer_step or configure_gradient_clipping: the gradient of weight is "))
          << console.text();
      EXPECT_TRUE(
          console.has(" in epoch 0, batch 5, global step 5, although it was finite before. Its update is skipped."))
          << console.text();
    }
  }
}

TEST(NonFiniteGradient, OneThatAHookMakesStopsTheRunInItsBatch) {
  for (const int64_t bad : {int64_t{5}, kBatches - 1}) {
    Spoils module;
    module.bad = {bad};
    const std::string error = error_of<NonFiniteLossError>([&] { Trainer(quiet(1, {})).fit(module, data({})); });
    EXPECT_TRUE(holds(error, {" in epoch 0, batch " + std::to_string(bad),
                              "Nothing was updated with it. Look at what the module and its callbacks do there"}))
        << error;
    EXPECT_TRUE(module.weight.isfinite().all().item<bool>());
  }
}

// With manual optimization the policy is `stop` or `ignore`.
struct Manual : Root {
  Manual() { set_automatic_optimization(false); }
  at::Tensor training_step(const Batch& batch, int64_t batch_idx) override {
    optimizer().zero_grad();
    if (with_closure) {
      optimizer().step([&] {
        optimizer().zero_grad();
        const at::Tensor loss = Root::training_step(batch, batch_idx);
        manual_backward(loss);
        return loss;
      });
      return {};
    }
    manual_backward(Root::training_step(batch, batch_idx));
    if (clips) clip_gradients(optimizer().optimizer(), 0.5);
    optimizer().step();
    return {};
  }
  bool clips = false, with_closure = false;
};

TEST(NonFiniteGradient, StopsBeforeTheUpdateOfManualOptimization) {
  for (const int kind : {0, 1, 2}) {
    Manual module, before;
    module.clips = before.clips = kind == 1;
    module.with_closure = before.with_closure = kind == 2;
    const std::string error = error_of<NonFiniteLossError>([&] { Trainer(quiet(1, {})).fit(module, data({5})); });
    EXPECT_TRUE(holds(error, {"the gradient of weight is nan in epoch 0, batch 5, global step 5"})) << kind;
    Trainer(quiet(1, {})).fit(before, data({}, 5));
    EXPECT_TRUE(torch::equal(module.weight, before.weight));
  }
}

TEST(NonFiniteGradient, IsIgnoredInManualOptimizationIfThePolicyRequiresIt) {
  Manual module;
  TrainerOptions options = quiet(1, {});
  options.nonfinite_loss = NonFiniteLoss::ignore;
  Trainer(options).fit(module, data({5}));
  EXPECT_TRUE(module.weight.isnan().all().item<bool>());
}

}  // namespace
}  // namespace levin::nonfinite_gradient_test
