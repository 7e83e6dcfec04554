// Weights that a step uses and the module has not registered are named, once; tensors that a step makes are not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/levin.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/parted_module.h"

namespace levin::unregistered_leaves_test {
namespace {

namespace nn = torch::nn;
using test::CapturedConsole;
using test::has;
using test::holds;

// A registered layer, and one that is only a member of the module.
class Forgetful : public LightningModule {
 public:
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor hidden = known->forward(batch[0]);
    at::Tensor loss = (forgotten ? forgotten->forward(hidden) : hidden).square().mean();
    if (add_to_loss) loss = loss + add_to_loss(batch);
    if (automatic_optimization()) return loss;
    calls_backward ? loss.backward() : manual_backward(loss);
    optimizer().step();
    optimizer().zero_grad();
    return {};
  }
  OptimizerConfig configure_optimizers() override {
    std::vector<at::Tensor> all = parameters();
    all.insert(all.end(), more.begin(), more.end());
    return SGD(all, {.lr = 0.1});
  }

  nn::Linear known{register_module("known", nn::Linear(8, 5))};
  nn::Linear forgotten = nullptr;
  bool calls_backward = false;   // instead of manual_backward
  std::vector<at::Tensor> more;  // for the optimizer
  std::function<at::Tensor(const Batch&)> add_to_loss;
};

// The warnings about gradients of a run of 4 batches and 2 epochs.
std::vector<std::string> warnings(Forgetful& module, TrainerOptions options = {}) {
  options.max_epochs = 2;
  options.logger = false;
  options.enable_progress_bar = options.enable_model_summary = options.enable_checkpointing = false;
  const CapturedConsole console;
  Trainer(options).fit(module, test::classes(16, 4));
  std::vector<std::string> found;
  for (const std::string& line : console.lines()) {
    if (has(line, "not among the parameters of")) found.push_back(line);
  }
  return found;
}

void expect_both_named(const std::vector<std::string>& lines) {
  ASSERT_EQ(lines.size(), 1);
  EXPECT_TRUE(holds(lines[0], {"the loss depends on 2 tensors that require gradients", "not among the parameters of ",
                               "Forgetful: ", "(3, 5) Float in addmm", "(3) Float in addmm",
                               "in no checkpoint and never trained", "register_module"}));
}

TEST(UnregisteredLeaves, AreNamedOnceInARun) {
  Forgetful module;
  module.forgotten = nn::Linear(5, 3);
  const at::Tensor before = module.forgotten->weight.detach().clone();
  expect_both_named(warnings(module));
  EXPECT_TRUE(torch::equal(module.forgotten->weight, before));
}

TEST(UnregisteredLeaves, AreNamedWithEachWayToComputeAStep) {
  const std::vector<std::function<void(Forgetful&, TrainerOptions&)>> ways{
      [](Forgetful& m, TrainerOptions&) { m.set_automatic_optimization(false); },
      [](Forgetful&, TrainerOptions& o) { o.accumulate_grad_batches = int64_t{2}; },
      [](Forgetful&, TrainerOptions& o) { o.micro_batch_size = int64_t{2}; },
      [](Forgetful&, TrainerOptions& o) { o.precision = "bf16-mixed"; },
      [](Forgetful&, TrainerOptions& o) { o.strategy = "ddp"; },
      [](Forgetful&, TrainerOptions& o) { o.strategy = "fsdp"; },
      [](Forgetful&, TrainerOptions& o) { o.record_steps = "auto"; }};
  for (size_t k = 0; k < ways.size(); ++k) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "way " + std::to_string(k));
    Forgetful module;
    module.forgotten = nn::Linear(5, 3);
    TrainerOptions options;
    ways[k](module, options);
    const auto lines = warnings(module, options);
    ASSERT_EQ(lines.size(), 1);
    EXPECT_TRUE(holds(lines[0], {"2 tensors", "(3, 5)", "(3) "}));
  }
}

// The step does not tell the trainer of its loss.
TEST(UnregisteredLeaves, AreNamedWhereTheStepCallsBackwardOfTheLossItself) {
  Forgetful module;
  module.set_automatic_optimization(false);
  module.calls_backward = true;
  module.forgotten = nn::Linear(5, 3);
  const auto lines = warnings(module);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_TRUE(holds(lines[0], {"2 tensors that require gradients", "(3, 5) Float", "(3) Float in addmm",
                               "in no checkpoint and never trained"}));
  Forgetful registered;
  registered.set_automatic_optimization(false);
  registered.calls_backward = true;
  EXPECT_TRUE(warnings(registered).empty());
}

// A teacher that the step only reads has no gradient.
TEST(UnregisteredLeaves, WithoutAGradientAreNotReported) {
  Forgetful module;
  module.set_automatic_optimization(false);
  module.calls_backward = true;
  nn::Linear teacher(8, 5), other(8, 5);
  module.add_to_loss = [&](const Batch& batch) {
    const at::Tensor detached = other->forward(batch[0]).detach().mean();
    const at::NoGradGuard no_grad;
    return teacher->forward(batch[0]).mean() + detached;
  };
  EXPECT_TRUE(warnings(module).empty());
}

// 4 batches in each of the epochs, whose numbers within the run are 0 to 7.
TEST(UnregisteredLeaves, AreNamedWhereALaterBatchOrEpochUsesThemFirst) {
  for (const bool automatic : {true, false}) {
    for (const int64_t first : {1, 2, 3, 4}) {
      Forgetful module;
      module.set_automatic_optimization(automatic);
      module.calls_backward = !automatic;
      nn::Linear late(8, 1);
      int64_t batch_number = -1;
      module.add_to_loss = [&](const Batch& batch) {
        return ++batch_number < first ? torch::zeros({}) : late->forward(batch[0]).mean();
      };
      const auto lines = warnings(module);
      ASSERT_EQ(lines.size(), 1) << first;
      EXPECT_TRUE(holds(lines[0], {"2 tensors", "(1, 8) Float", "(1) Float"}));
    }
  }
}

TEST(UnregisteredLeaves, ThatAnOptimizerHasAreMerelyInNoCheckpoint) {
  Forgetful module;
  const at::Tensor scale = torch::ones({1}).requires_grad_();
  module.more = {scale};
  module.add_to_loss = [&](const Batch&) { return scale.square().sum(); };
  const auto lines = warnings(module);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_TRUE(holds(lines[0], {"the loss depends on 1 tensor that requires a gradient", "(1) Float in pow",
                               "It is in no checkpoint."}));
  EXPECT_FALSE(has(lines[0], "never trained"));
}

TEST(UnregisteredLeaves, OfAFrozenLayerAreNotReported) {
  Forgetful module;
  module.forgotten = nn::Linear(5, 3);
  for (at::Tensor& parameter : module.forgotten->parameters()) parameter.set_requires_grad(false);
  EXPECT_TRUE(warnings(module).empty());
}

TEST(UnregisteredLeaves, ThatAStepMakesAreInputs) {
  Forgetful module;
  std::vector<at::Tensor> kept;
  module.add_to_loss = [&](const Batch& batch) {
    const at::Tensor input = batch[0].detach().requires_grad_();  // shares the batch's memory
    kept.push_back(input);
    const at::Tensor made = (batch[0] * 0.5).detach().requires_grad_();  // the inputs of a gradient penalty
    const at::Tensor out = module.known->forward(made).sum() + module.known->forward(input).square().sum();
    return torch::autograd::grad({out}, {made}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0].square().mean() +
           1e-3 * out;
  };
  EXPECT_TRUE(warnings(module).empty());
}

TEST(UnregisteredLeaves, OfARegisteredModelDoNotExist) {
  Forgetful module;
  const at::Tensor tied = module.known->weight;  // a second handle of a registered tensor
  module.add_to_loss = [&](const Batch&) { return tied.abs().mean(); };
  EXPECT_TRUE(warnings(module).empty());
}

}  // namespace
}  // namespace levin::unregistered_leaves_test
