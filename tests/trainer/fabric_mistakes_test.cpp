// Mistakes in a loop of one's own that would show only in the weights, and what their messages say.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/core/files/files.h"
#include "levin/data/loading/dataloader.h"
#include "levin/loggers/csv_logger.h"
#include "levin/optim/sgd.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/lightning_module.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"
#include "trainer/fabric_net.h"

namespace levin::fabric_mistakes_test {
namespace {

using namespace test;

// A loop of one's own over one module.
struct OwnLoop {
  explicit OwnLoop(FabricOptions options = {}) : fabric(std::move(options)) {}

  at::Tensor step(const Batch& batch = fixed_batch()) {
    return fabric.step(batch, [&](const Batch& each) { return net.loss(each); });
  }
  void backward() { fabric.backward(net.loss(fixed_batch())); }

  FabricNet net;
  Fabric fabric;
  FabricOptimizer optimizer = fabric.setup(net, SGD(net.parameters(), {.lr = 0.1}));
};

// ---- gradients ------------------------------------------------------------------------------------------------------

TEST(FabricGradients, OfAStepAreNotAddedToThoseOfBackward) {
  for (const bool records : {false, true}) {
    OwnLoop loop({.record_steps = records ? std::variant<bool, std::string>("auto") : false});
    for (int k = 0; k < 5; ++k) (void)loop.step();
    expect_parts(error_of<Error>([&] { loop.backward(); }),
                 {"Fabric.backward: the gradients of the last Fabric.step are still there", "optimizer.zero_grad()"});
    loop.optimizer.zero_grad();
    loop.backward();
    loop.optimizer.step();
    EXPECT_EQ(loop.fabric.global_step(), 6);
  }
}

TEST(FabricGradients, TheModulesOwnZeroGradDropsThemToo) {
  for (const bool to_none : {false, true}) {
    const CapturedConsole console;
    OwnLoop loop;
    (void)loop.step();
    for (int k = 0; k < 2; ++k) {
      loop.net.zero_grad(to_none);
      loop.backward();
      loop.optimizer.step();
    }
    EXPECT_EQ(console.text(), "");
  }
}

TEST(FabricGradients, ThatAreUsedAgainAreAWarningOnce) {
  const CapturedConsole console;
  OwnLoop loop;
  for (int k = 0; k < 3; ++k) {
    loop.backward();
    loop.optimizer.step();
    EXPECT_EQ(console.has("FabricOptimizer.step: the gradients of the optimizer step before are used again"), k > 0);
  }
  const std::string& text = console.text();
  EXPECT_EQ(text.find("used again"), text.rfind("used again"));
  EXPECT_TRUE(console.has("Call optimizer.zero_grad()"));
}

TEST(FabricGradients, AStepWithoutBackwardIsAWarning) {
  {
    const CapturedConsole console;
    OwnLoop loop;
    loop.optimizer.step();
    EXPECT_TRUE(console.has("FabricOptimizer.step: there are no gradients")) << console.text();
  }
  const CapturedConsole console;
  OwnLoop loop;
  loop.backward();
  loop.optimizer.step();
  loop.optimizer.step();
  EXPECT_TRUE(console.has("are used again")) << console.text();
}

TEST(FabricGradients, AccumulationAndSeveralPlayersAreNoMistakes) {
  const CapturedConsole console;
  OwnLoop loop;
  for (int k = 0; k < 6; ++k) {
    if (k % 2 == 0) loop.optimizer.zero_grad();
    loop.backward();
    if (k % 2 == 1) loop.optimizer.step();
  }
  TwoNets nets;
  Fabric fabric;
  FabricOptimizer generator = fabric.setup(nets.generator, SGD(nets.generator->parameters(), {.lr = 0.1}), "generator");
  FabricOptimizer critic = fabric.setup(nets.critic, SGD(nets.critic->parameters(), {.lr = 0.1}), "critic");
  for (int64_t k = 0; k < 3; ++k) {
    critic.zero_grad();
    fabric.backward(nets.critic_loss(k));
    critic.step();
    generator.zero_grad();
    fabric.backward(nets.generator_loss(k));  // and adds to the critic's
    generator.step();
  }
  EXPECT_EQ(console.text(), "");
}

TEST(FabricGradients, BackwardInTheClosureOfAStepIsAnError) {
  OwnLoop loop;
  expect_parts(error_of<Error>([&] {
                 (void)loop.fabric.step(fixed_batch(), [&](const Batch& batch) {
                   at::Tensor loss = loop.net.loss(batch);
                   loop.fabric.backward(loss);
                   return loss;
                 });
               }),
               {"Fabric.backward: it was called in the closure of Fabric.step", "Return the loss"});
  (void)loop.step();
  EXPECT_EQ(loop.fabric.global_step(), 1);
}

// ---- what messages say ----------------------------------------------------------------------------------------------

TEST(FabricMessages, ATensorOfTheWrongTypeIsNamed) {
  const auto as = [](at::ScalarType x, at::ScalarType y) {
    return Batch({fixed_batch()[0].to(x), fixed_batch()[1].to(y)});
  };
  OwnLoop loop;
  expect_parts(error_of<Error>([&] { (void)loop.step(as(at::kDouble, at::kFloat)); }),
               {"Fabric.step: ", "The weights are Float, and batch[0] is Double", ".to(torch::kFloat)"});
  const std::string target = error_of<Error>([&] { (void)loop.step(as(at::kFloat, at::kDouble)); });
  expect_parts(target, {"The weights are Float, and batch[1] is Double", "FabricOptions.precision"});
  EXPECT_FALSE(has(target, "TrainerOptions"));
  OwnLoop doubles({.precision = "64-true"});
  expect_parts(error_of<Error>([&] { (void)doubles.step(); }),
               {"The weights are Double, and batch[0] is Float, and batch[1] is Float", "fabric.to_device(batch)"});
  (void)doubles.step(doubles.fabric.to_device(fixed_batch()));
  OwnLoop by_hand;
  expect_parts(error_of<Error>([&] { by_hand.fabric.backward(by_hand.net.loss(as(at::kFloat, at::kDouble))); }),
               {"Fabric.backward: ", "The weights are Float. Inputs and targets need the same type"});
}

struct Ready : LightningModule {
  at::Tensor training_step(const Batch& batch, int64_t) override { return net->loss(batch); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
  std::shared_ptr<FabricNet> net = register_module("net", std::make_shared<FabricNet>());
};

TEST(FabricMessages, SetupWithoutAnOptimizerPointsAtTheModulesOwn) {
  Ready module;
  Fabric fabric;
  (void)fabric.setup(module);
  expect_parts(error_of<Error>([&] { (void)fabric.step(fixed_batch()); }),
               {"Fabric.step: ", "0 optimizers were set up", "fabric.setup(module, module.configure_optimizers())"});
}

TEST(FabricMessages, NameFabricsOptionsAndCalls) {
  const CapturedConsole console;
  OwnLoop loop({.record_steps = true});
  const at::Tensor factor = torch::ones(1, torch::requires_grad());
  (void)loop.fabric.step(fixed_batch(), [&](const Batch& batch) {
    return torch::mse_loss(loop.net.layers->forward(batch[0]), batch[1].squeeze(1)) * factor.sum();
  });
  for (int64_t rows = 1; rows < 8; ++rows) (void)loop.step({torch::ones({rows, 4}), torch::ones({rows, 1})});
  const std::string& text = console.text();
  EXPECT_TRUE(holds(text, {"Fabric.step: mse_loss compares", "parameters of the modules that were set up"}));
  for (const char* foreign : {"TrainerOptions", "FabricModules", "training_step: "}) EXPECT_FALSE(has(text, foreign));
  const std::string constant =
      error_of([&] { (void)loop.fabric.step(fixed_batch(), [](const Batch&) { return torch::ones({}); }); });
  EXPECT_TRUE(has(constant, "no gradient") && !has(constant, "set_automatic_optimization")) << constant;
}

// ---- values ---------------------------------------------------------------------------------------------------------

TEST(FabricLog, RefusesWhatIsNotOneNumber) {
  OwnLoop loop;
  expect_parts(error_of<Error>([&] { loop.fabric.log("loss", at::Tensor()); }),
               {"Fabric.log: the tensor of \"loss\" is undefined", "log only what was computed"});
  expect_parts(error_of<Error>([&] { loop.fabric.log("loss", torch::ones(3)); }),
               {"Fabric.log: the tensor of \"loss\" has 3 elements", "mean()"});
  const std::string nameless = error_of<Error>([&] { loop.fabric.log("", 1.0); });
  EXPECT_TRUE(has(nameless, "Fabric.log: a value needs a name") && !has(nameless, "log_now")) << nameless;
}

TEST(FabricLog, RowsAreOnTheDiskAfterASave) {
  const TemporaryFolder folder;
  OwnLoop loop({.loggers = CSVLogger({.save_dir = folder.path(), .name = "", .version = "run"})});
  loop.fabric.log("loss", 0.5, 1);
  loop.fabric.save(folder / "a.ckpt");
  EXPECT_TRUE(has(read_file(folder / "run/metrics.csv"), "0.5"));  // as a kill now would leave it
  loop.fabric.log("loss", 0.25, 2);
  loop.fabric.save(folder / "a.ckpt");
  EXPECT_TRUE(has(read_file(folder / "run/metrics.csv"), "0.25"));
}

TEST(FabricEnd, ResultsCanBeReadAfterIt) {
  OwnLoop loop;
  (void)loop.step();
  loop.fabric.end_epoch();
  loop.fabric.log("loss", 0.5);
  loop.fabric.finish();
  EXPECT_EQ(loop.fabric.global_step(), 1);
  EXPECT_EQ(loop.fabric.current_epoch(), 1);
  EXPECT_EQ(loop.fabric.callback_metrics().at("loss"), 0.5);
  expect_parts(error_of<Error>([&] { (void)loop.step(); }), {"Fabric.step: the run has ended"});
}

}  // namespace
}  // namespace levin::fabric_mistakes_test
