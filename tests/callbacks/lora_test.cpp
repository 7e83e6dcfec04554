// The callback LoRA in runs.
#include "levin/callbacks/lora.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "callbacks/quiet_trainer.h"
#include "callbacks/resume.h"
#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/callbacks/weight_averaging.h"
#include "levin/optim/adam.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/field_count.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::lora_test {
namespace {

using test::error_of;
using test::expect_near;
using test::expect_same_bits;
using test::holds;
using test::module_tensors;
using test::quiet;

// Two layers and a head; the same weights every time.
class Net : public LightningModule {
 public:
  Net() {
    torch::manual_seed(7);
    up = register_module("up", torch::nn::Linear(4, 12));
    down = register_module("down", torch::nn::Linear(12, 8));
    head = register_module("head", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(const at::Tensor& x) override {
    return head->forward(torch::tanh(down->forward(torch::relu(up->forward(x)))));
  }
  at::Tensor training_step(const Batch& batch, int64_t) override {
    const at::Tensor loss = torch::mse_loss(forward(batch[0]).squeeze(1), batch[1].squeeze(1));
    losses.push_back(loss.item<float>());
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override { log("val_loss", forward(batch[0]).mean()); }
  OptimizerConfig configure_optimizers() override { return AdamW(parameters(), {.lr = 0.05}); }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<Net>();
  }

  torch::nn::Linear up{nullptr}, down{nullptr}, head{nullptr};
  std::vector<float> losses = {};
};

Loaders data(int64_t batch_size = 4) {
  return {test::tiny_loader(24, batch_size)};
}

double mean_of_epoch(const std::vector<float>& losses, size_t epoch) {
  return std::accumulate(losses.begin() + static_cast<std::ptrdiff_t>(6 * epoch),
                         losses.begin() + static_cast<std::ptrdiff_t>(6 * epoch + 6), 0.0) /
         6;
}

Callbacks lora(const LoRAOptions& options) {
  return {LoRA(options)};
}

const LoRAOptions kTwoLayers{.target_modules = {"up", "down"}, .r = 3, .lora_alpha = 6.0};

LoRAOptions two_layers(const std::function<void(LoRAOptions&)>& change = [](LoRAOptions&) {}) {
  LoRAOptions options = kTwoLayers;
  change(options);
  return options;
}

// One run of `epochs` from the same random numbers; the module's tensors after it.
State trained(const LoRAOptions& options, int64_t epochs, const std::function<void(TrainerOptions&)>& change = {}) {
  torch::manual_seed(3);
  Net module;
  torch::manual_seed(11);
  TrainerOptions run = quiet(epochs, lora(options));
  if (change) change(run);
  Trainer(std::move(run)).fit(module, data());
  return module_tensors(module);
}

TEST(LoRACallback, OptionsAreListed) {
  EXPECT_EQ(levin::testing::field_count<LoRAOptions>(), field_names<LoRAOptions>().size());
}

TEST(LoRACallback, TrainsTheAdaptersAloneAndOptimizersKeepStateForThemAlone) {
  Net module;
  const State before = module_tensors(module);
  Trainer trainer(quiet(8, lora(kTwoLayers)));
  trainer.fit(module, data());
  EXPECT_LT(mean_of_epoch(module.losses, 7), 0.7 * mean_of_epoch(module.losses, 0));
  int64_t trainable = 0;
  for (const auto& item : module.named_parameters()) {
    const bool is_adapter = item.key().find("lora_") != std::string::npos;
    EXPECT_EQ(item.value().requires_grad(), is_adapter) << item.key();
    EXPECT_TRUE(is_adapter || !item.value().grad().defined()) << item.key();
    if (is_adapter) {
      trainable += item.value().numel();
    } else {
      EXPECT_TRUE(item.value().equal(before.tensors.at(item.key()))) << item.key();
    }
  }
  EXPECT_EQ(trainable, 3 * (4 + 12) + 3 * (12 + 8));
  // AdamW was given all parameters: two tensors and a count for each that has a gradient.
  int64_t held = 0;
  for (const auto& [name, tensor] : trainer.optimizers()[0].optimizer().state_dict().tensors) {
    if (!name.ends_with(".step")) held += tensor.numel();
  }
  EXPECT_EQ(held, 2 * trainable);
}

// The same model with the updates written out.
class WrittenOut : public Net {
 public:
  WrittenOut() {
    freeze();
    a1 = register_parameter("a1", torch::zeros({3, 4}));
    b1 = register_parameter("b1", torch::zeros({12, 3}));
    a2 = register_parameter("a2", torch::zeros({3, 12}));
    b2 = register_parameter("b2", torch::zeros({8, 3}));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const auto layer = [](const torch::nn::Linear& of, const at::Tensor& in, const at::Tensor& a, const at::Tensor& b) {
      return at::linear(in, of->weight, of->bias) + at::linear(at::linear(in, a), b) * 2;
    };
    return head->forward(torch::tanh(layer(down, torch::relu(layer(up, x, a1, b1)), a2, b2)));
  }
  OptimizerConfig configure_optimizers() override { return AdamW({a1, b1, a2, b2}, {.lr = 0.05}); }
  at::Tensor a1, b1, a2, b2;
};

TEST(LoRACallback, LossesEqualTheUpdatesWrittenOut) {
  Net module;
  WrittenOut written;
  apply_lora(module, kTwoLayers);
  {
    const torch::NoGradGuard no_grad;
    const auto layers = lora_layers(module);
    written.a1.copy_(layers[0].second->lora_A());
    written.a2.copy_(layers[1].second->lora_A());
  }
  Trainer(quiet(8, lora(kTwoLayers))).fit(module, data());
  Trainer(quiet(8, {})).fit(written, data());
  ASSERT_EQ(module.losses.size(), 48);
  for (size_t k = 0; k < 20; ++k) EXPECT_NEAR(module.losses[k], written.losses[k], 2e-6) << k;
  EXPECT_LT(mean_of_epoch(module.losses, 7), 0.7 * mean_of_epoch(module.losses, 0));
}

TEST(LoRACallback, ResumesToTheBit) {
  const auto test = [](Quantize quantize) {
    return test::ResumeTest{
        .callback =
            [quantize] {
              return std::make_shared<LoRA>(LoRAOptions{.target_modules = {"linear"},
                                                        .r = 2,
                                                        .lora_dropout = 0.2,
                                                        .modules_to_save = {"head"},
                                                        .quantize = quantize});
            },
        .optimizers = [](test::TinyModule& m) -> OptimizerConfig { return AdamW(m.parameters(), {.lr = 0.01}); }};
  };
  for (const Quantize quantize : {Quantize::none, Quantize::int8}) {
    test(quantize).cut_after(6);
    test(quantize).cut_after(15);
  }
}

TEST(LoRACallback, TestsAndPredictsFromACheckpoint) {
  const test::TemporaryFolder folder;
  for (const Quantize quantize : {Quantize::none, Quantize::int8}) {
    const auto options = two_layers([&](LoRAOptions& o) { o.quantize = quantize; });
    Net module;
    Trainer trainer(quiet(3, lora(options)));
    trainer.fit(module, data());
    trainer.save_checkpoint(folder / "run.ckpt");
    const auto here = trainer.predict(module, data());
    Net other;
    Trainer again(quiet(3, lora(options)));
    const auto there = again.predict(other, data(), folder / "run.ckpt");
    Net untrained;
    const auto without = Trainer(quiet(1, {})).predict(untrained, data());
    ASSERT_EQ(here[0].size(), there[0].size());
    for (size_t k = 0; k < here[0].size(); ++k) EXPECT_TRUE(here[0][k].equal(there[0][k]));
    EXPECT_GT((here[0][0] - without[0][0]).abs().max().item<double>(), 0.01);
  }
}

TEST(LoRACallback, OneModuleGoesThroughSeveralEntryPoints) {
  Net module;
  Trainer trainer(quiet(2, lora(kTwoLayers)));
  trainer.fit(module, data());
  const State after = module_tensors(module);
  trainer.validate(module, data());
  trainer.predict(module, data());
  expect_same_bits(module_tensors(module), after, "nothing has changed");
  Trainer(quiet(2, lora(kTwoLayers))).fit(module, data());
  EXPECT_FALSE(module_tensors(module).tensors.at("up.lora_B.weight").equal(after.tensors.at("up.lora_B.weight")));
  EXPECT_TRUE(module_tensors(module).tensors.at("up.weight").equal(after.tensors.at("up.weight")));
}

TEST(LoRACallback, ReplicasOfDpAreAdapted) {
  const State one = trained(kTwoLayers, 3);
  for (const Quantize quantize : {Quantize::none, Quantize::int8}) {
    const auto options = two_layers([&](LoRAOptions& o) { o.quantize = quantize; });
    const State alone = trained(options, 3);
    for (const char* strategy : {"dp", "dp_balanced"}) {
      const State parts = trained(options, 3, [&](TrainerOptions& run) {
        run.devices = 2;
        run.accelerator = "cpu";
        run.strategy = strategy;
      });
      expect_near(parts, alone, 2e-5, strategy);
    }
  }
  EXPECT_GT(one.tensors.at("up.lora_B.weight").abs().max().item<double>(), 0.01);
}

TEST(LoRACallback, RecordedStepsAreTheSame) {
  const auto with_dropout = two_layers([](LoRAOptions& o) { o.lora_dropout = 0.3; });
  for (const auto& options : {kTwoLayers, with_dropout}) {
    const test::CapturedConsole console;
    const State eager = trained(options, 8);
    const State recorded = trained(options, 8, [](TrainerOptions& run) { run.record_steps = true; });
    expect_same_bits(recorded, eager, "recorded");
    EXPECT_FALSE(console.has("record_steps: batch")) << console.text();
  }
}

TEST(LoRACallback, MixedPrecisionTrainsFloat32Adapters) {
  const State mixed = trained(kTwoLayers, 4, [](TrainerOptions& run) { run.precision = "bf16-mixed"; });
  const State full = trained(kTwoLayers, 4);
  EXPECT_EQ(mixed.tensors.at("up.lora_A.weight").scalar_type(), torch::kFloat);
  expect_near(mixed, full, 0.1, "bf16-mixed");
  EXPECT_FALSE(mixed.tensors.at("up.lora_B.weight").equal(full.tensors.at("up.lora_B.weight")));
  const State whole = trained(kTwoLayers, 4, [](TrainerOptions& run) { run.precision = "64-true"; });
  EXPECT_EQ(whole.tensors.at("up.lora_A.weight").scalar_type(), torch::kDouble);
}

TEST(LoRACallback, AveragesTrackTheAdapters) {
  Net module;
  TrainerOptions run = quiet(4, {LoRA(kTwoLayers), EMAWeightAveraging({.decay = 0.5})});
  Trainer(std::move(run)).fit(module, data());
  const State averaged = module_tensors(module);
  const State last = trained(kTwoLayers, 4);
  EXPECT_FALSE(averaged.tensors.at("up.lora_B.weight").equal(last.tensors.at("up.lora_B.weight")));
  EXPECT_TRUE(averaged.tensors.at("up.weight").equal(last.tensors.at("up.weight")));
}

TEST(LoRACallback, TrainsModulesToSaveAndBiases) {
  const auto trains = [](const LoRAOptions& options) {
    Net module;
    apply_lora(module, options);
    std::vector<std::string> names;
    for (const auto& item : module.named_parameters()) {
      if (item.value().requires_grad() && item.key().find("lora") == std::string::npos) names.push_back(item.key());
    }
    return join(names);
  };
  EXPECT_EQ(trains({.target_modules = {"up"}}), "none");
  EXPECT_EQ(trains({.target_modules = {"up"}, .bias = LoRABias::all}), "up.bias, down.bias, head.bias");
  EXPECT_EQ(trains({.target_modules = {"up"}, .bias = LoRABias::lora_only}), "up.bias");
  EXPECT_EQ(trains({.target_modules = {"up"}, .modules_to_save = {"head"}}), "head.weight, head.bias");
  EXPECT_EQ(trains({.target_modules = {"all-linear"}, .modules_to_save = {"head"}}), "head.weight, head.bias");
}

// Computes with a copy of its layer's weight, as a compiled step does.
class Unseen : public Net {
 public:
  at::Tensor forward(const at::Tensor& x) override {
    return head->forward(torch::tanh(at::linear(x, torch::ones({8, 4}))));
  }
};

TEST(LoRACallback, AdaptersThatAreNotUsedAreAnError) {
  Unseen module;
  EXPECT_TRUE(holds(
      error_of<Error>([&] {
        Trainer(quiet(1, lora(two_layers([](LoRAOptions& o) { o.modules_to_save = {"head"}; })))).fit(module, data());
      }),
      {"LoRA: the first batch did not compute with the weight of any adapted layer (up, down)",
       "compiled ahead of time cannot be adapted"}));
  const test::CapturedConsole console;
  Unseen other;
  Trainer(quiet(1, lora({.target_modules = {"all-linear"}}))).fit(other, data());
  EXPECT_TRUE(console.has("LoRA: the first batch did not use 2 adapted layers of 3: up, down.")) << console.text();
}

TEST(LoRACallback, NamesWhatIsWrong) {
  const auto fit_error = [](const LoRAOptions& options) {
    Net module;
    return error_of<Error>([&] { Trainer(quiet(1, lora(options))).fit(module, data()); });
  };
  EXPECT_TRUE(holds(fit_error({}), {"LoRAOptions.target_modules: names no layer", "up, down, head"}));
  EXPECT_TRUE(
      holds(fit_error({.target_modules = {"upp"}}), {"LoRAOptions.target_modules[0]: no layer's name matches \"upp\"",
                                                     "Did you mean \"up\"?", "Linear layers: up, down, head"}));
  struct Numbered : test::TinyModule {
    torch::nn::Sequential net{register_module(
        "net", torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::Tanh(), torch::nn::Linear(4, 1)))};
  } numbered;
  EXPECT_TRUE(
      holds(error_of<Error>([&] { Trainer(quiet(1, lora({.target_modules = {"first"}}))).fit(numbered, data()); }),
            {"Linear layers: layer, net.0, net.2."}));
  EXPECT_TRUE(holds(fit_error({.target_modules = {"up"}, .exclude_modules = {"nothing"}}),
                    {"LoRAOptions.exclude_modules[0]: no module's name matches \"nothing\""}));
  EXPECT_TRUE(holds(fit_error({.target_modules = {"up"}, .modules_to_save = {"haed"}}),
                    {"LoRAOptions.modules_to_save[0]: no module's name matches \"haed\"", "Did you mean \"head\"?"}));
  EXPECT_TRUE(holds(fit_error({.target_modules = {"up"}, .exclude_modules = {"up"}}), {"nothing would be adapted"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { LoRA bad({.target_modules = {"up"}, .r = 0, .lora_dropout = 1.0}); }),
                    {"LoRAOptions.r: must be > 0", "LoRAOptions.lora_dropout: must be < 1"}));
  Net twice;
  EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                      Trainer trainer(quiet(1, {LoRA(kTwoLayers), LoRA({.target_modules = {"head"}})}));
                      trainer.fit(twice, data());
                    }),
                    {"two callbacks keep their state as \"LoRA\""}));
}

TEST(LoRACallback, RefusesOtherOptionsForAnAdaptedModule) {
  const test::TemporaryFolder folder;
  Net module;
  Trainer trainer(quiet(1, lora(kTwoLayers)));
  trainer.fit(module, data());
  trainer.save_checkpoint(folder / "a.ckpt");
  const auto again = [&](const std::function<void(LoRAOptions&)>& change) {
    return error_of<ConfigError>([&] { Trainer(quiet(1, lora(two_layers(change)))).fit(module, data()); });
  };
  EXPECT_TRUE(holds(again([](LoRAOptions& o) { o.r = 5; }),
                    {"LoRAOptions.r: 5, but the module is adapted with 3 already", "merge_lora"}));
  EXPECT_TRUE(holds(again([](LoRAOptions& o) { o.quantize = Quantize::int8; }), {"LoRAOptions.quantize: int8"}));
  EXPECT_TRUE(holds(again([](LoRAOptions& o) { o.target_modules = {"head"}; }),
                    {"LoRAOptions.target_modules: names head", "adapted in down, up"}));
  EXPECT_EQ(again([](LoRAOptions&) {}), "");
  Net other;
  EXPECT_TRUE(
      holds(error_of<CheckpointError>([&] {
              const auto scaled = two_layers([](LoRAOptions& o) { o.lora_alpha = 60.0; });
              Trainer(quiet(2, lora(scaled))).fit(other, data(), {}, folder / "a.ckpt");
            }),
            {"LoRA: the checkpoint's adapters are scaled by 2", "give 20", "Give the values of the checkpoint"}));
}

}  // namespace
}  // namespace levin::lora_test
