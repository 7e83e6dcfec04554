#include "levin/callbacks/finetuning.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/instancenorm.h>

#include "callbacks/resume.h"
#include "levin/callbacks/lambda_callback.h"
#include "support/captured_console.h"
#include "support/field_count.h"

namespace levin::finetuning_test {
namespace {

using namespace test;

OptimizerConfig sgd(TinyModule& module) {
  return SGD(trainable_parameters(module), {.lr = 0.1, .momentum = 0.9});
}

// lr of every group at the start of each epoch, the callback's work done.
using Rates = std::vector<std::vector<double>>;

Rates rates(BackboneFinetuning callback, int64_t epochs, std::function<OptimizerConfig(TinyModule&)> optimizers = sgd) {
  Rates found;
  TwoPartModule module;
  module.make_optimizers = std::move(optimizers);
  Trainer trainer(
      quiet(epochs, {std::move(callback), LambdaCallback({.on_train_epoch_start = [&](Trainer& t, LightningModule&) {
                       found.emplace_back();
                       for (const auto& group : t.optimizers()[0].optimizer().param_groups()) {
                         found.back().push_back(group.lr);
                       }
                     }})}));
  trainer.fit(module, tiny_loader(24));
  return found;
}

void expect_near(const Rates& got, const Rates& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size()) << "epoch " << i;
    for (size_t k = 0; k < got[i].size(); ++k) EXPECT_NEAR(got[i][k], want[i][k], 1e-12) << "epoch " << i;
  }
}

TEST(BackboneFinetuning, UnfreezesTheBackboneWithARateThatDoublesUpToTheHeads) {
  expect_near(rates(BackboneFinetuning({.unfreeze_backbone_at_epoch = 2}), 8),
              {{0.1}, {0.1}, {0.1, 0.01}, {0.1, 0.02}, {0.1, 0.04}, {0.1, 0.08}, {0.1, 0.1}, {0.1, 0.1}});
}

TEST(BackboneFinetuning, TakesItsRateFromItsOptions) {
  expect_near(rates(BackboneFinetuning(
                        {.unfreeze_backbone_at_epoch = 1, .backbone_initial_ratio_lr = 0.5, .should_align = false}),
                    4),
              {{0.1}, {0.1, 0.05}, {0.1, 0.1}, {0.1, 0.2}});
  std::vector<int64_t> asked;
  const auto lambda = [&](int64_t epoch) {
    asked.push_back(epoch);
    return 1.5;
  };
  expect_near(rates(BackboneFinetuning({.unfreeze_backbone_at_epoch = 0, .backbone_initial_lr = 0.02}, lambda), 3),
              {{0.1, 0.02}, {0.1, 0.03}, {0.1, 0.045}});
  EXPECT_EQ(asked, (std::vector<int64_t>{2, 3}));  // epochs from 1, as in Lightning
}

TEST(BackboneFinetuning, FollowsTheHeadsScheduler) {
  const auto scheduled = [](TinyModule& m) {
    return OptimizerConfig(SGD(trainable_parameters(m), {.lr = 0.8}), StepLR({.step_size = 1, .gamma = 0.5}));
  };
  // The scheduler halves every group's lr after each epoch; the callback sets the backbone's anew.
  expect_near(rates(BackboneFinetuning({.unfreeze_backbone_at_epoch = 1}), 4, scheduled),
              {{0.8}, {0.4, 0.04}, {0.2, 0.08}, {0.1, 0.1}});
}

TEST(BackboneFinetuning, TrainsOnlyTheHeadBeforeAndTheBackboneAfter) {
  TwoPartModule module;
  module.make_optimizers = sgd;
  std::vector<State> starts;
  Trainer trainer(quiet(4, {BackboneFinetuning({.unfreeze_backbone_at_epoch = 2, .train_bn = false}),
                            LambdaCallback({.on_train_epoch_start = [&](Trainer&, LightningModule& m) {
                              starts.push_back(module_tensors(m));
                            }})}));
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  const auto same = [&](size_t one, size_t other, const std::string& name) {
    return starts[one].tensors.at(name).equal(starts[other].tensors.at(name));
  };
  EXPECT_TRUE(same(0, 2, "backbone.linear.weight"));
  EXPECT_FALSE(same(2, 3, "backbone.linear.weight"));
  EXPECT_FALSE(same(0, 1, "head.weight"));
  // With train_bn false BatchNorm keeps weights and statistics for good.
  for (const char* name : {"backbone.norm.weight", "backbone.norm.running_mean", "backbone.norm.running_var",
                           "backbone.norm.num_batches_tracked"}) {
    EXPECT_TRUE(same(0, 3, name)) << name;
  }
}

TEST(BackboneFinetuning, BatchNormTrainsFromTheStartUnlessConfiguredOtherwise) {
  TwoPartModule module;
  module.make_optimizers = sgd;
  const State before = module_tensors(module);
  Trainer trainer(quiet(1, BackboneFinetuning({.unfreeze_backbone_at_epoch = 5})));
  trainer.fit(module, tiny_loader(24));
  const State after = module_tensors(module);
  for (const char* name : {"backbone.norm.weight", "backbone.norm.running_mean"}) {
    EXPECT_FALSE(after.tensors.at(name).equal(before.tensors.at(name))) << name;
  }
  EXPECT_TRUE(after.tensors.at("backbone.linear.weight").equal(before.tensors.at("backbone.linear.weight")));
}

TEST(BackboneFinetuning, FreezesInstanceNorms) {
  struct Frozen : TwoPartModule {
    torch::nn::InstanceNorm1d instances = backbone->register_module(
        "instances",
        torch::nn::InstanceNorm1d(torch::nn::InstanceNorm1dOptions(4).affine(true).track_running_stats(true)));
  } module;
  module.make_optimizers = sgd;
  std::optional<bool> trains;
  const auto look = LambdaCallback(
      {.on_train_start = [&](Trainer&, LightningModule&) { trains = module.instances->weight.requires_grad(); }});
  Trainer(quiet(1, {BackboneFinetuning({.unfreeze_backbone_at_epoch = 5}), look})).fit(module, tiny_loader(24));
  EXPECT_EQ(trains, false);
}

TEST(BackboneFinetuning, ResumesBitwiseIdentically) {
  for (const bool train_bn : {true, false}) {
    ResumeTest test;
    test.callback = [=] {
      return std::make_shared<BackboneFinetuning>(
          BackboneFinetuningOptions{.unfreeze_backbone_at_epoch = 2, .train_bn = train_bn});
    };
    test.optimizers = [](TinyModule& m) {
      return OptimizerConfig(AdamW(trainable_parameters(m), {.lr = 0.02}), StepLR({.step_size = 2, .gamma = 0.5}));
    };
    test.cut_after(6);   // before it is unfrozen
    test.cut_after(12);  // when it is about to be
    test.cut_after(15);  // in its first epoch
    test.cut_after(24);  // later
  }
}

TEST(BackboneFinetuning, ASecondFitUnfreezesAnew) {
  TwoPartModule module;
  module.make_optimizers = sgd;
  TrainerOptions options = quiet(6, BackboneFinetuning({.unfreeze_backbone_at_epoch = 1}));
  Trainer trainer(options);
  module.on_training_step = [&](int64_t) {
    if (trainer.current_epoch() == 2) trainer.request_stop("enough");
  };
  trainer.fit(module, tiny_loader(24));
  ASSERT_EQ(trainer.current_epoch(), 3);
  module.on_training_step = nullptr;
  trainer.fit(module, tiny_loader(24));
  ASSERT_EQ(trainer.optimizers()[0].optimizer().param_groups().size(), 2U);
  EXPECT_NEAR(trainer.optimizers()[0].optimizer().param_groups()[1].lr, 0.04, 1e-12);  // epochs 3, 4, 5
}

TEST(BackboneFinetuning, PrintsBothRatesIfVerbose) {
  const CapturedConsole console;
  static_cast<void>(
      rates(BackboneFinetuning(
                {.unfreeze_backbone_at_epoch = 0, .backbone_initial_lr = 0.012345, .verbose = true, .rounding = 3}),
            1));
  EXPECT_TRUE(console.has("BackboneFinetuning: lr 0.1, the backbone's 0.012.")) << console.text();
}

TEST(BackboneFinetuning, FindsASubmoduleByADifferentName) {
  TwoPartModule module;
  module.make_optimizers = sgd;
  Trainer trainer(quiet(1, BackboneFinetuning({.backbone = "backbone.linear"})));
  trainer.fit(module, tiny_loader(24));
  EXPECT_FALSE(module.linear->weight.requires_grad());
  EXPECT_TRUE(module.head->weight.requires_grad());
}

TEST(BackboneFinetuning, FreezesWhatConfigureModelMakes) {
  struct Late : TinyModule {
    void configure_model() override {
      if (!backbone.is_empty()) return;
      backbone = register_module("backbone", torch::nn::Linear(4, 4));
    }
    torch::nn::Linear backbone{nullptr};
  } module;
  module.make_optimizers = sgd;
  Trainer trainer(quiet(1, BackboneFinetuning()));
  trainer.fit(module, tiny_loader(24));
  EXPECT_FALSE(module.backbone->weight.requires_grad());
}

std::string refused(BackboneFinetuningOptions options, std::function<OptimizerConfig(TinyModule&)> optimizers = sgd) {
  TwoPartModule module;
  module.make_optimizers = std::move(optimizers);
  Trainer trainer(quiet(1, BackboneFinetuning(std::move(options))));
  return error_of([&] { trainer.fit(module, tiny_loader(8)); });
}

TEST(BackboneFinetuning, NamesWhatItCannotWorkWith) {
  std::string error = refused({.backbone = "backbon"});
  EXPECT_TRUE(has(error, "no submodule \"backbon\"") && has(error, "It has: backbone, head") &&
              has(error, "Did you mean \"backbone\"?"))
      << error;
  error = refused({}, [](TinyModule& m) { return SGD(m.parameters(), {.lr = 0.1}); });
  EXPECT_TRUE(has(error, "gave SGD 2 parameters that are frozen (backbone.linear.weight, backbone.linear.bias)") &&
              has(error, "trainable_parameters(*this)"))
      << error;
  error = refused({}, [](TinyModule& m) {
    m.set_automatic_optimization(false);
    OptimizerConfig both(SGD(trainable_parameters(m), {.lr = 0.1}));
    both.add(SGD({torch::ones({1}, torch::requires_grad())}, {.lr = 0.1}));
    return both;
  });
  EXPECT_TRUE(has(error, "1 optimizer") && has(error, "returned 2") && has(error, "BaseFinetuning")) << error;
}

TEST(BackboneFinetuning, RefusesOptionsOutOfRange) {
  const std::string error = error_of([] {
    BackboneFinetuning({.unfreeze_backbone_at_epoch = -1,
                        .backbone_initial_ratio_lr = 0,
                        .backbone_initial_lr = -0.1,
                        .initial_denom_lr = 0,
                        .rounding = 99,
                        .backbone = ""});
  });
  for (const char* part :
       {"unfreeze_backbone_at_epoch", "backbone_initial_ratio_lr", "backbone_initial_lr: must be > 0",
        "initial_denom_lr", "rounding", "BackboneFinetuningOptions.backbone: must be set"}) {
    EXPECT_TRUE(has(error, part)) << error;
  }
  EXPECT_EQ(testing::field_count<BackboneFinetuningOptions>(), field_names<BackboneFinetuningOptions>().size());
}

// ---- BaseFinetuning

struct TwoSteps final : BaseFinetuning {
  void freeze_before_training(LightningModule& module) override { freeze(*child(module, "backbone"), train_bn); }
  void finetune_function(LightningModule& module, int64_t epoch, Optimizer& optimizer) override {
    if (epoch == 1) added.push_back(unfreeze_and_add_param_group(*child(module, "backbone.linear"), optimizer));
    if (epoch == 2) added.push_back(unfreeze_and_add_param_group(*child(module, "backbone.norm"), optimizer, 0.5));
    if (epoch == 3) added.push_back(unfreeze_and_add_param_group(*child(module, "backbone"), optimizer));
    if (epoch == 4) optimizer.add_param_group({.params = foreign});
  }
  [[nodiscard]] std::string state_key() const override { return "TwoSteps"; }
  using BaseFinetuning::filter_params;

  bool train_bn = false;
  std::vector<bool> added = {};
  std::vector<at::Tensor> foreign = {};
};

TEST(BaseFinetuning, AddsPartsAsGroupsOfTheirOwn) {
  TwoPartModule module;
  module.make_optimizers = sgd;
  auto callback = std::make_shared<TwoSteps>();
  Trainer trainer(quiet(4, {callback}));
  trainer.fit(module, tiny_loader(24));
  EXPECT_EQ(callback->added, (std::vector<bool>{true, true, false}));  // nothing is left the third time
  const auto& groups = trainer.optimizers()[0].optimizer().param_groups();
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_NEAR(groups[1].lr, 0.01, 1e-12);  // a tenth: initial_denom_lr
  EXPECT_EQ(groups[2].lr, 0.5);
  EXPECT_EQ(groups[1].momentum, 0.9);
  EXPECT_TRUE(module.norm->is_training());
}

TEST(BaseFinetuning, ResumesBitwiseIdentically) {
  ResumeTest test;
  test.epochs = 4;
  test.callback = [] { return std::make_shared<TwoSteps>(); };
  test.optimizers = sgd;
  for (const int64_t step : {3, 9, 12, 18}) test.cut_after(step);
}

TEST(BaseFinetuning, FiltersParametersOnceEach) {
  TwoPartModule module;
  module.backbone->push_back("again", module.linear);
  EXPECT_EQ(TwoSteps::filter_params(*module.backbone).size(), 4U);
  EXPECT_EQ(TwoSteps::filter_params(*module.backbone, /*train_bn=*/false).size(), 2U);
  EXPECT_EQ(TwoSteps::filter_params(*module.backbone, true, /*requires_grad=*/false).size(), 0U);
  EXPECT_EQ(TwoSteps::filter_params(module).size(), 6U);  // a module on the stack too
  module.head->weight.set_requires_grad(false);
  EXPECT_EQ(trainable_parameters(module).size(), 5U);
}

TEST(BaseFinetuning, RefusesTensorsThatACheckpointCouldNotName) {
  TwoPartModule module;
  module.make_optimizers = sgd;
  auto callback = std::make_shared<TwoSteps>();
  callback->foreign = {torch::ones({3}, torch::requires_grad())};
  Trainer trainer(quiet(5, {callback}));
  const std::string error = error_of([&] { trainer.fit(module, tiny_loader(24)); });
  EXPECT_TRUE(has(error, "TwoSteps: finetune_function gave SGD a tensor of shape [3]") && has(error, "Register it"))
      << error;
}

TEST(BaseFinetuning, NamesWhatACheckpointHasAndTheModuleHasNot) {
  const TemporaryFolder folder;
  TwoPartModule module;
  module.make_optimizers = sgd;
  Trainer trainer(quiet(2, {std::make_shared<TwoSteps>()}));
  trainer.fit(module, tiny_loader(24));
  trainer.save_checkpoint(folder / "a.ckpt");
  const State saved = read_checkpoint(folder / "a.ckpt");
  State changed = saved;
  State callback = saved.part("callbacks.TwoSteps");
  callback.set("param_groups", std::vector<std::vector<std::string>>{{"gone"}});
  changed.put("callbacks.TwoSteps", callback);
  write_checkpoint(folder / "b.ckpt", changed);
  const auto resume = [&](const std::string& path) {
    return error_of([&] { Trainer(quiet(3, {std::make_shared<TwoSteps>()})).fit(module, tiny_loader(24), {}, path); });
  };
  std::string error = resume(folder / "b.ckpt");
  EXPECT_TRUE(has(error, "\"gone\"") && has(error, "the same model")) << error;
  callback = saved.part("callbacks.TwoSteps");
  callback.set("param_group_optimizers", std::vector<int64_t>{4});
  changed.put("callbacks.TwoSteps", callback);
  write_checkpoint(folder / "b.ckpt", changed);
  error = resume(folder / "b.ckpt");
  EXPECT_TRUE(has(error, "an optimizer 4") && has(error, "returned 1")) << error;
}

}  // namespace
}  // namespace levin::finetuning_test
