// What a step publishes with step_output, as the hooks after the batch see it.
#include "levin/trainer/step_output.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/quiet_trainer.h"
#include "levin/optim/lbfgs.h"
#include "levin/strategies/device/dp.h"
#include "levin/strategies/device/model_parallel.h"
#include "support/captured_console.h"
#include "support/parted_module.h"

namespace levin::step_output_test {
namespace {

using namespace test;
namespace F = torch::nn::functional;

/// What the callback has seen of each batch.
struct Seen {
  std::vector<at::Tensor> scores = {}, means = {}, losses = {};
  std::vector<at::Tensor> wanted = {};  // the batch's own scores' first column, by its inputs
  int validated = 0, tested = 0, in_module = 0;
};

class Net : public PartedModule {
 public:
  explicit Net(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Net>(seen_);
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor scores = forward(batch[0]);
    step_output("inputs", batch[0]);
    step_output("scores", scores);
    step_output("mean", scores.mean());
    if (odd) step_output("odd", torch::zeros({7, 2}));
    return F::cross_entropy(scores, batch[1]);
  }
  void validation_step(const Batch& batch, int64_t) override { step_output("scores", forward(batch[0])); }
  void test_step(const Batch& batch, int64_t) override { step_output("scores", forward(batch[0])); }
  void on_train_batch_end(const at::Tensor&, const Batch&, int64_t) override {
    seen_->in_module += trainer().step_output().has("scores") ? 1 : 0;
  }
  bool odd = false;

 private:
  std::shared_ptr<Seen> seen_;
};

// A class of its own, because steps with a LambdaCallback are not recorded: it might act within them.
class Watcher final : public Callback {
 public:
  explicit Watcher(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
  void on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t) override {
    EXPECT_TRUE(trainer.step_output().empty()) << "freed after the batch before";
  }
  void on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor& loss, const Batch& batch,
                          int64_t) override {
    const StepOutput& outputs = trainer.step_output();
    EXPECT_TRUE(outputs.loss().is_same(loss));
    EXPECT_TRUE(outputs["inputs"].equal(batch[0])) << "the rows in the batch's order";
    EXPECT_FALSE(outputs["scores"].requires_grad());
    seen_->scores.push_back(outputs["scores"]);
    seen_->means.push_back(outputs["mean"]);
  }
  void on_validation_batch_end(Trainer& trainer, LightningModule&, const Batch& batch, int64_t, int64_t) override {
    seen_->validated += trainer.step_output()["scores"].size(0) == batch.size() ? 1 : 0;
  }
  void on_test_batch_end(Trainer& trainer, LightningModule&, const Batch& batch, int64_t, int64_t) override {
    seen_->tested += trainer.step_output()["scores"].size(0) == batch.size() ? 1 : 0;
  }

 private:
  std::shared_ptr<Seen> seen_;
};

Watcher watcher(const std::shared_ptr<Seen>& seen) {
  return Watcher(seen);
}

using Change = std::function<void(TrainerOptions&)>;

Seen run(const Change& change = nullptr, bool odd = false) {
  const auto seen = std::make_shared<Seen>();
  Net module(seen);
  module.odd = odd;
  seed_everything(7);
  TrainerOptions options = quiet(2, {watcher(seen)});
  if (change) change(options);
  Trainer trainer(options);
  trainer.fit(module, classes(22, 8), classes(22, 8));
  EXPECT_TRUE(trainer.step_output().empty());
  return *seen;
}

void expect_like_one_device(const Seen& seen) {
  const Seen plain = run();
  ASSERT_EQ(plain.scores.size(), 6U);
  ASSERT_EQ(seen.scores.size(), plain.scores.size());
  for (size_t k = 0; k < plain.scores.size(); ++k) {
    EXPECT_TRUE(torch::allclose(seen.scores[k], plain.scores[k], 1e-4, 1e-5)) << k;
    EXPECT_TRUE(torch::allclose(seen.means[k], plain.means[k], 1e-4, 1e-5)) << k;
    EXPECT_TRUE(torch::allclose(seen.means[k], seen.scores[k].mean(), 1e-4, 1e-5)) << "weighted by samples";
  }
}

TEST(StepOutput, ReachesTheHooksOfCallbacksAndOfTheModule) {
  const Seen seen = run();
  EXPECT_EQ(seen.scores.size(), 6U);
  EXPECT_EQ(seen.in_module, 6);
  EXPECT_EQ(seen.validated, 2 + 2 * 3) << "the sanity check's batches too";
}

TEST(StepOutput, ReachesTheHooksOfTests) {
  const auto seen = std::make_shared<Seen>();
  Net module(seen);
  Trainer trainer(quiet(1, {watcher(seen)}));
  trainer.test(module, classes(22, 8));
  EXPECT_EQ(seen->tested, 3);
}

TEST(StepOutput, BelongsToEachAccumulatedBatch) {
  const Seen seen = run([](TrainerOptions& options) { options.accumulate_grad_batches = 3; });
  EXPECT_EQ(seen.scores.size(), 6U);
}

TEST(StepOutput, OfReplicasIsJoinedInTheBatchsOrder) {
  for (const char* strategy : {"dp", "dp_balanced"}) {
    const Seen seen = run([&](TrainerOptions& options) {
      options.strategy = strategy;
      options.devices = 3;
    });
    expect_like_one_device(seen);
    EXPECT_EQ(seen.validated, 2 + 2 * 3);
  }
}

TEST(StepOutput, OfMicroBatchesIsJoined) {
  expect_like_one_device(run([](TrainerOptions& options) { options.micro_batch_size = 3; }));
}

TEST(StepOutput, OfAPipelineIsJoined) {
  expect_like_one_device(run([](TrainerOptions& options) {
    options.devices = 2;
    options.strategy = std::make_shared<ModelParallel>(
        ModelParallelOptions{.placement = Placement{{"encoder", 0}, {"decoder", 1}}, .pipeline = PipelineOptions{4}});
  }));
}

TEST(StepOutput, OfPartsIsRefusedWhereItCannotBeJoined) {
  const auto parts = [](TrainerOptions& options) { options.micro_batch_size = 3; };
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)run(parts, /*odd=*/true); }),
                    {"step_output(\"odd\")", "a part of 3 samples", "(7, 2)", "Publish one of these"}));
}

// Each replay gives the batch's own outputs, which stay when the next one runs.
TEST(StepOutput, OfRecordedStepsBelongsToEachReplay) {
  const auto epochs = [](TrainerOptions& options) { options.max_epochs = 6; };
  const Seen plain = run(epochs);
  const Seen recorded = run([&](TrainerOptions& options) {
    epochs(options);
    options.record_steps = true;
  });
  ASSERT_EQ(recorded.scores.size(), plain.scores.size());
  for (size_t k = 0; k < plain.scores.size(); ++k) {
    EXPECT_TRUE(torch::equal(recorded.scores[k], plain.scores[k])) << k;
    EXPECT_TRUE(torch::equal(recorded.means[k], plain.means[k])) << k;
  }
  EXPECT_EQ(recorded.validated, plain.validated);
}

TEST(StepOutput, OfAClosureIsItsLastEvaluations) {
  struct Closed : Net {
    using Net::Net;
    OptimizerConfig configure_optimizers() override { return LBFGS(parameters(), {.lr = 0.1, .max_iter = 3}); }
  };
  const auto seen = std::make_shared<Seen>();
  Closed module(seen);
  Trainer trainer(quiet(1, {watcher(seen)}));
  trainer.fit(module, classes(16, 8));
  EXPECT_EQ(seen->scores.size(), 2U);
}

TEST(StepOutput, NamesWhatThereIs) {
  StepOutput outputs;
  outputs.add("logits", torch::ones({2}));
  EXPECT_EQ(outputs.names(), (std::vector<std::string>{"logits"}));
  for (const auto& [name, value] : outputs) EXPECT_EQ(name + std::to_string(value.numel()), "logits2");
  EXPECT_TRUE(holds(error_of<Error>([&] { (void)outputs["logit"]; }),
                    {"no \"logit\"", "Did you mean \"logits\"?", "has published: logits", "hooks after its batch"}));
}

TEST(StepOutput, NeedsANameOfItsOwn) {
  struct Twice : Net {
    using Net::Net;
    at::Tensor training_step(const Batch& batch, int64_t) override {
      step_output(name, batch[0]);
      step_output(name, batch[0]);
      return {};
    }
    std::string name = "x";
  };
  Twice module(std::make_shared<Seen>());
  const auto fit = [&] { Trainer(quiet(1, {})).fit(module, classes(8, 8)); };
  EXPECT_TRUE(holds(error_of<Error>(fit), {"step_output(\"x\")", "twice in one step"}));
  module.name = "";
  EXPECT_TRUE(holds(error_of<Error>(fit), {"needs a name"}));
}

}  // namespace
}  // namespace levin::step_output_test
