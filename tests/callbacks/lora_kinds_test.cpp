// Embeddings, convolutions and linear layers adapted together in runs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "callbacks/lora_reader.h"
#include "callbacks/quiet_trainer.h"
#include "callbacks/resume.h"
#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/callbacks/lora.h"
#include "levin/libtorch/observed_weight.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::lora_kinds_test {
namespace {

using test::error_of;
using test::expect_near;
using test::expect_same_bits;
using test::holds;
using test::module_tensors;
using test::quiet;
using test::Reader;

Loaders data(int64_t batch_size = 4) {
  return {test::reader_texts(batch_size)};
}

LoRAOptions all_layers(const std::function<void(LoRAOptions&)>& change = [](LoRAOptions&) {}) {
  LoRAOptions options{.target_modules = test::reader_layers(), .r = 3, .lora_alpha = 6.0};
  change(options);
  return options;
}

State trained(const LoRAOptions& options, int64_t epochs, const std::function<void(TrainerOptions&)>& change = {}) {
  Reader module;
  torch::manual_seed(11);
  TrainerOptions run = quiet(epochs, {LoRA(options)});
  if (change) change(run);
  Trainer(std::move(run)).fit(module, data());
  return module_tensors(module);
}

TEST(LoRAOfAllKindsInRuns, TrainsTheAdaptersAloneAndOptimizersKeepStateForThemAlone) {
  Reader module;
  const State before = module_tensors(module);
  Trainer trainer(quiet(20, {LoRA(all_layers())}));
  trainer.fit(module, data());
  const auto mean = [&](size_t epoch) {
    const auto first = module.losses.begin() + static_cast<std::ptrdiff_t>(6 * epoch);
    return std::accumulate(first, first + 6, 0.0) / 6;
  };
  EXPECT_LT(mean(19), 0.8 * mean(0));
  int64_t trainable = 0;
  for (const auto& item : module.named_parameters()) {
    const bool is_adapter = item.key().find("lora_") != std::string::npos;
    EXPECT_EQ(item.value().requires_grad(), is_adapter) << item.key();
    if (is_adapter) {
      trainable += item.value().numel();
      EXPECT_GT(item.value().detach().abs().max().item<float>(), 0) << item.key();
    } else {
      EXPECT_FALSE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().equal(before.tensors.at(item.key()))) << item.key();
    }
  }
  EXPECT_EQ(trainable, 3 * (12 + 8) + 3 * (8 * 3 + 10) + 3 * (10 + 3));
  int64_t held = 0;
  for (const auto& [name, tensor] : trainer.optimizers()[0].optimizer().state_dict().tensors) {
    if (!name.ends_with(".step")) held += tensor.numel();
  }
  EXPECT_EQ(held, 2 * trainable) << "AdamW's two tensors for each";
}

// The same model with the updates written out as weights.
class WrittenOut : public Reader {
 public:
  WrittenOut() {
    freeze();
    a1 = register_parameter("a1", torch::zeros({3, 12}));
    b1 = register_parameter("b1", torch::zeros({8, 3}));
    a2 = register_parameter("a2", torch::zeros({3, 8, 3}));
    b2 = register_parameter("b2", torch::zeros({10, 3, 1}));
    a3 = register_parameter("a3", torch::zeros({3, 10}));
    b3 = register_parameter("b3", torch::zeros({3, 3}));
  }
  at::Tensor forward(const at::Tensor& ids) override {
    const auto own = named_parameters();
    const at::Tensor table = own["tokens.0.weight"] + 2 * b1.matmul(a1).t();
    const at::Tensor kernel = own["conv.1.weight"] + 2 * b2.flatten(1).matmul(a2.flatten(1)).view({10, 8, 3});
    const at::Tensor x = at::conv1d(table.index({ids}).transpose(1, 2), kernel, own["conv.1.bias"]).tanh().mean(2);
    return at::linear(x, own["head.0.weight"] + 2 * b3.matmul(a3), own["head.0.bias"]);
  }
  OptimizerConfig configure_optimizers() override { return AdamW({a1, b1, a2, b2, a3, b3}, {.lr = 0.02}); }
  at::Tensor a1, b1, a2, b2, a3, b3;
};

TEST(LoRAOfAllKindsInRuns, LossesEqualTheUpdatesWrittenOut) {
  Reader module;
  WrittenOut written;
  apply_lora(module, all_layers());
  {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor*> values{&written.a1, &written.b1, &written.a2, &written.b2, &written.a3, &written.b3};
    size_t k = 0;
    for (const auto& [name, layer] : lora_layers(module)) {
      values[k++]->copy_(layer->lora_A());
      values[k++]->copy_(layer->lora_B());
    }
  }
  const auto fit = [](LightningModule& of, Callbacks callbacks) {
    TrainerOptions run = quiet(4, std::move(callbacks));
    run.precision = "64-true";
    Trainer(std::move(run)).fit(of, data());
  };
  fit(module, {LoRA(all_layers())});
  fit(written, {});
  ASSERT_EQ(module.losses.size(), 24);
  for (size_t k = 0; k < 24; ++k) EXPECT_NEAR(module.losses[k], written.losses[k], 1e-6) << k;
  EXPECT_NE(module.losses.front(), module.losses.back());
}

TEST(LoRAOfAllKindsInRuns, ResumesToTheBit) {
  const test::TemporaryFolder folder;
  const auto options = all_layers([](LoRAOptions& o) {
    o.lora_dropout = 0.3;
    o.bias = LoRABias::lora_only;
  });
  const auto run = [&](const std::shared_ptr<Callback>& extra, const std::string& from) {
    auto module = std::make_shared<Reader>();
    torch::manual_seed(3);
    Callbacks callbacks{LoRA(options)};
    if (extra) callbacks.push_back(extra);
    auto trainer = std::make_shared<Trainer>(quiet(4, std::move(callbacks)));
    const std::string error = error_of([&] { trainer->fit(*module, data(), {}, from); });
    EXPECT_EQ(error.empty(), extra == nullptr) << error;
    return std::pair(trainer, module);
  };
  const auto [whole, whole_module] = run(nullptr, "");
  for (const int64_t step : {4, 12}) {
    const std::string path = folder / ("cut" + std::to_string(step) + ".ckpt");
    (void)run(std::make_shared<test::SaveThenFail>(path, step), "");
    const auto [rest, rest_module] = run(nullptr, path);
    expect_same_bits(module_tensors(*rest_module), module_tensors(*whole_module), "module");
    expect_same_bits(rest->optimizers()[0].optimizer().state_dict(), whole->optimizers()[0].optimizer().state_dict(),
                     "optimizer");
  }
}

TEST(LoRAOfAllKindsInRuns, PredictsFromACheckpointAndFromAFolderAsItWasTrained) {
  const test::TemporaryFolder folder;
  const auto options = all_layers([&](LoRAOptions& o) { o.save_to = folder / "adapter"; });
  Reader module;
  Trainer trainer(quiet(3, {LoRA(options)}));
  trainer.fit(module, data());
  trainer.save_checkpoint(folder / "run.ckpt");
  const auto here = trainer.predict(module, data())[0];
  Reader other, apart, untrained;
  Trainer again(quiet(1, {LoRA(all_layers())})), reader(quiet(1, {LoRA({.path = folder / "adapter"})}));
  const auto from_checkpoint = again.predict(other, data(), folder / "run.ckpt")[0];
  const auto from_folder = reader.predict(apart, data())[0];
  const auto without = Trainer(quiet(1, {})).predict(untrained, data())[0];
  merge_lora(module);
  const auto merged = Trainer(quiet(1, {})).predict(module, data())[0];
  ASSERT_EQ(here.size(), 6);
  for (size_t k = 0; k < here.size(); ++k) {
    EXPECT_TRUE(here[k].equal(from_checkpoint[k])) << k;
    EXPECT_TRUE(here[k].equal(from_folder[k])) << k;
    EXPECT_TRUE(torch::allclose(here[k], merged[k], 1e-5, 1e-5)) << k;
  }
  EXPECT_GT((here[0] - without[0]).abs().max().item<double>(), 0.01);
}

TEST(LoRAOfAllKindsInRuns, ReplicasOfDpAreAdapted) {
  const auto in_double = [](TrainerOptions& run) { run.precision = "64-true"; };
  const State alone = trained(all_layers(), 3, in_double);
  for (const char* strategy : {"dp", "dp_balanced"}) {
    const State parts = trained(all_layers(), 3, [&](TrainerOptions& run) {
      in_double(run);
      run.devices = 2;
      run.accelerator = "cpu";
      run.strategy = strategy;
    });
    expect_near(parts, alone, 1e-9, strategy);
  }
}

TEST(LoRAOfAllKindsInRuns, RecordedStepsAreTheSame) {
  const auto options = all_layers([](LoRAOptions& o) { o.lora_dropout = 0.3; });
  const test::CapturedConsole console;
  const State eager = trained(options, 6);
  const State recorded = trained(options, 6, [](TrainerOptions& run) { run.record_steps = true; });
  expect_same_bits(recorded, eager, "recorded");
  EXPECT_FALSE(console.has("record_steps: batch")) << console.text();
}

TEST(LoRAOfAllKindsInRuns, RecomputedPartsAreTheSame) {
  const auto options = all_layers([](LoRAOptions& o) { o.lora_dropout = 0.3; });
  const State plain = trained(options, 3);
  const State recomputed = trained(options, 3, [](TrainerOptions& run) {
    run.recompute = RecomputeOptions{.modules = {"tokens", "conv", "head"}};
  });
  expect_same_bits(recomputed, plain, "recomputed");
}

TEST(LoRAOfAllKindsInRuns, MixedPrecisionTrainsFloat32Adapters) {
  const State mixed = trained(all_layers(), 2, [](TrainerOptions& run) { run.precision = "bf16-mixed"; });
  const State full = trained(all_layers(), 2);
  for (const auto& [name, tensor] : mixed.tensors) EXPECT_EQ(tensor.scalar_type(), torch::kFloat) << name;
  expect_near(mixed, full, 0.3, "bf16-mixed");
  const State whole = trained(all_layers(), 2, [](TrainerOptions& run) { run.precision = "64-true"; });
  EXPECT_EQ(whole.tensors.at("tokens.0.lora_embedding_A.weight").scalar_type(), torch::kDouble);
  EXPECT_EQ(whole.tensors.at("conv.1.lora_A.weight").scalar_type(), torch::kDouble);
}

}  // namespace
}  // namespace levin::lora_kinds_test
