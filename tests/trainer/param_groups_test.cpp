// Parameters sorted into groups by name and kind.
#include "levin/trainer/param_groups.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "callbacks/quiet_trainer.h"
#include "levin/levin.h"
#include "support/error_text.h"
#include "support/tiny_module.h"

namespace levin::param_groups_test {
namespace {

using test::error_of;

namespace nn = torch::nn;
using Names = std::vector<std::string>;

// encoder.0.{weight,bias}, encoder.1.{weight,bias} (LayerNorm), head.{weight,bias}
struct Net : LightningModule {
  Net() {
    register_module("encoder", encoder);
    register_module("head", head);
  }
  nn::Sequential encoder{nn::Linear(4, 3), nn::LayerNorm(nn::LayerNormOptions({3}))};
  nn::Linear head{3, 2};
};

Names names_of(const Net& net, const ParamGroup& group) {
  Names names;
  for (const auto& tensor : group.params) {
    for (const auto& entry : net.named_parameters()) {
      if (entry.value().is_same(tensor)) names.push_back(entry.key());
    }
  }
  return names;
}

TEST(ParamGroups, WithoutWishesAreOneGroupOfAllParameters) {
  const Net net;
  const auto groups = param_groups(net, {});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].params.size(), net.parameters().size());
  EXPECT_FALSE(groups[0].lr || groups[0].weight_decay || groups[0].momentum);
}

TEST(ParamGroups, NoDecaySetsBiasesAndNormalizationLayersApart) {
  const Net net;
  const auto groups = param_groups(net, {}, true);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(names_of(net, groups[0]), (Names{"encoder.0.weight", "head.weight"}));
  EXPECT_FALSE(groups[0].weight_decay);
  EXPECT_EQ(names_of(net, groups[1]), (Names{"encoder.0.bias", "encoder.1.weight", "encoder.1.bias", "head.bias"}));
  EXPECT_EQ(groups[1].weight_decay, 0.0);
}

// A layer with two names. Its bias has the gradient 1, so that two steps of 0.1 change it by -0.2.
struct Tied : LightningModule {
  Tied() {
    register_module("left", shared);
    register_module("right", shared);
  }
  at::Tensor training_step(const Batch&, int64_t) override { return shared->bias.sum(); }
  OptimizerConfig configure_optimizers() override { return make(*this); }
  nn::Linear shared{4, 4};
  std::function<OptimizerConfig(Tied&)> make = nullptr;
};

TEST(ParamGroups, ATiedLayerIsTrainedOnce) {
  const std::vector<std::function<OptimizerConfig(Tied&)>> ways = {
      [](Tied& m) { return OptimizerConfig(SGD(m.parameters(), {.lr = 0.1})); },
      [](Tied& m) { return OptimizerConfig(SGD(param_groups(m), {.lr = 0.1})); },
      [](Tied& m) { return OptimizerConfig(SGD(param_groups(m, {{.params = {"right.*"}, .lr = 0.1}}))); },
      [](Tied& m) { return OptimizerConfig(SGD(param_groups(m, {}, true), {.lr = 0.1, .weight_decay = 0.5})); },
      [](Tied& m) { return OptimizerConfig(torch::optim::SGD(m.parameters(), 0.1)); },
      [](Tied& m) { return OptimizerConfig(Lookahead(SGD(m.parameters(), {.lr = 0.1}), {.k = 9})); }};
  for (size_t k = 0; k < ways.size(); ++k) {
    for (const double clip : {0.0, 100.0}) {
      Tied module;
      module.make = ways[k];
      const at::Tensor before = module.shared->bias.detach().clone();
      TrainerOptions options = test::quiet(1, {});
      if (clip > 0) options.gradient_clip_val = clip;
      Trainer(options).fit(module, test::tiny_loader(8));
      EXPECT_TRUE(at::allclose(module.shared->bias, before - 0.2)) << "way " << k << ", clip " << clip;
    }
  }
}

TEST(ParamGroups, ATiedLayerBelongsToTheFirstGroupThatMatchesOneOfItsNames) {
  const Tied net;
  const auto groups = param_groups(net, {{.params = {"right.weight"}, .lr = 0.5}}, true);
  ASSERT_EQ(groups.size(), 2U);
  ASSERT_EQ(groups[0].params.size(), 1U);
  EXPECT_TRUE(groups[0].params[0].is_same(net.shared->weight));
  ASSERT_EQ(groups[1].params.size(), 1U);
  EXPECT_TRUE(groups[1].params[0].is_same(net.shared->bias));
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  EXPECT_TRUE(test::has(error_of([&] {
                          (void)param_groups(net, {{.params = {"left.*"}}, {.params = {"right.*"}}});
                        }),
                        "all that \"right.*\" matches is in param_groups[0] already"));
}

TEST(ParamGroups, TheFirstPatternThatMatchesCounts) {
  const Net net;
  const auto groups = param_groups(net, {{.params = {"head.*"}, .lr = 0.5}, {.params = {"*.weight"}, .lr = 0.25}});
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(names_of(net, groups[0]), (Names{"head.weight", "head.bias"}));
  EXPECT_EQ(groups[0].lr, 0.5);
  EXPECT_EQ(names_of(net, groups[1]), (Names{"encoder.0.weight", "encoder.1.weight"}));
  EXPECT_EQ(groups[1].lr, 0.25);
  EXPECT_EQ(names_of(net, groups[2]), (Names{"encoder.0.bias", "encoder.1.bias"}));
  EXPECT_FALSE(groups[2].lr);
}

TEST(ParamGroups, AWeightDecayThatIsWrittenStandsAboveNoDecay) {
  const Net net;
  const auto groups =
      param_groups(net, {{.params = {"head.*"}, .weight_decay = 0.1}, {.params = {"encoder.0.*"}}}, true);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(names_of(net, groups[0]), (Names{"head.weight", "head.bias"}));
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(names_of(net, groups[1]), (Names{"encoder.0.weight"}));
  EXPECT_FALSE(groups[1].weight_decay);
  EXPECT_EQ(names_of(net, groups[2]), (Names{"encoder.0.bias"}));
  EXPECT_EQ(groups[2].weight_decay, 0.0);
  EXPECT_EQ(names_of(net, groups[3]), (Names{"encoder.1.weight", "encoder.1.bias"}));
}

TEST(ParamGroups, LeaveOutWhatIsFrozenButKnowItsName) {
  Net net;
  for (auto& parameter : net.encoder->parameters()) parameter.requires_grad_(false);
  const auto groups = param_groups(net, {{.params = {"encoder.*"}, .lr = 0.1}});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(names_of(net, groups[0]), (Names{"head.weight", "head.bias"}));
  for (auto& parameter : net.parameters()) parameter.requires_grad_(false);
  EXPECT_NE(error_of<ConfigError>([&] { (void)param_groups(net, {}); }).find("no parameter that requires a gradient"),
            std::string::npos);
}

TEST(ParamGroups, RefuseAPatternThatMatchesNothingAndANegativeNumber) {
  const Net net;
  const std::string error = error_of<ConfigError>([&] {
    (void)param_groups(net, {{.params = {"head.weigth"}}, {.params = {"*"}, .lr = -1.0}}, false,
                       "optimizer.param_groups");
  });
  for (const std::string part :
       {"optimizer.param_groups[0].params: no parameter's name matches \"head.weigth\". Did you mean \"head.weight\"?",
        "Parameters: encoder.0.weight, encoder.0.bias", "optimizer.param_groups[1].lr: must be >= 0, got -1.0"}) {
    EXPECT_NE(error.find(part), std::string::npos) << part << "\n" << error;
  }
}

TEST(ParamGroups, RefuseAPatternOfWhichEarlierGroupsHaveAll) {
  const Net net;
  const std::string error = error_of<ConfigError>([&] {
    (void)param_groups(net, {{.params = {"encoder.*"}}, {.params = {"encoder.0.*", "head.*"}, .lr = 0.1}}, false,
                       "optimizer.param_groups");
  });
  EXPECT_EQ(
      error,
      "optimizer.param_groups[1].params: all that \"encoder.0.*\" matches is in optimizer.param_groups[0] already: "
      "the first group that matches counts. Write the narrower pattern first.");
}

// A step of SGD with a gradient of 1: p - lr * (1 + weight_decay * p), each with its own group's numbers.
TEST(ParamGroups, ReachTheUpdate) {
  Net net;
  SGD optimizer(param_groups(net, {{.params = {"head.*"}, .lr = 0.5}}, true), {.lr = 0.1, .weight_decay = 0.25});
  std::map<std::string, at::Tensor> expected;
  for (auto& entry : net.named_parameters()) {
    entry.value().mutable_grad() = torch::ones_like(entry.value());
    const double lr = entry.key().starts_with("head.") ? 0.5 : 0.1;
    const bool decays = entry.key() == "head.weight" || entry.key() == "encoder.0.weight";
    expected[entry.key()] = entry.value().detach() - lr * (1 + (decays ? 0.25 : 0.0) * entry.value().detach());
  }
  optimizer.step();
  for (const auto& entry : net.named_parameters()) {
    EXPECT_TRUE(torch::allclose(entry.value(), expected[entry.key()], 1e-6, 1e-7)) << entry.key();
  }
}

// g++ finds X({}) ambiguous where {} could also be a default-constructed X to copy.
TEST(EmptyBraces, AreTheDefaultOptions) {
  const auto same = [](const auto& braces, const auto& defaults) {
    EXPECT_EQ(to_yaml(braces.written_options()), to_yaml(defaults.written_options()));
  };
  same(ReduceLROnPlateau({}), ReduceLROnPlateau());
  same(ConstantLR({}), ConstantLR());
  same(LinearLR({}), LinearLR());
  same(PolynomialLR({}), PolynomialLR());
  same(CosineWithWarmup({}), CosineWithWarmup());
  const OptimizerConfig config(SGD({torch::zeros({1})}, {.lr = 0.1}), ReduceLROnPlateau({}), {.monitor = "val_loss"});
  EXPECT_EQ(config.schedulers().size(), 1U);
  EXPECT_EQ(ModelCheckpoint({}).state_key(), ModelCheckpoint().state_key());
  EXPECT_EQ(BatchSizeFinder({}).found(), std::nullopt);
  const Callbacks callbacks = {ModelSummary({}),      ProgressBar({}),     LearningRateMonitor({}), Timer({}),
                               ThroughputMonitor({}), WeightAveraging({}), DeviceStatsMonitor({})};
  EXPECT_EQ(callbacks.size(), 7U);
  EXPECT_EQ(metrics::MeanMetric({}).name(), "MeanMetric");
  TrainerOptions options = test::quiet(1, {});
  options.logger = CSVLogger({});
  options.precision = MixedPrecision({});
  EXPECT_TRUE(DDP({}).ranks().is_distributed());
}

}  // namespace
}  // namespace levin::param_groups_test
