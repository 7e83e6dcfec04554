// LoRA with the parts of a module on several devices.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "callbacks/lora_reader.h"
#include "callbacks/quiet_trainer.h"
#include "callbacks/resume.h"
#include "levin/callbacks/lora.h"
#include "levin/strategies/device/model_parallel.h"
#include "support/error_text.h"

namespace levin::lora_parts_test {
namespace {

using test::error_of;
using test::expect_same_bits;
using test::holds;
using test::module_tensors;
using test::quiet;
using test::Reader;

LoRAOptions all_layers() {
  return {.target_modules = test::reader_layers(), .r = 3, .lora_alpha = 6.0};
}

struct Result {
  State weights;
  std::vector<float> losses;
};

Result train(const LoRAOptions& options, const std::shared_ptr<Strategy>& strategy, int64_t devices,
             int64_t entry_points = 1) {
  Reader module;
  torch::manual_seed(11);
  for (int64_t k = 0; k < entry_points; ++k) {
    TrainerOptions run = quiet(3, {LoRA(options)});
    run.accelerator = "cpu";
    if (options.quantize == Quantize::none) run.precision = "64-true";  // so that other orders of sums stay small
    if (strategy) {
      run.devices = devices;
      run.strategy = strategy;
    }
    Trainer(std::move(run)).fit(module, {test::reader_texts(8)});
  }
  return {module_tensors(module), module.losses};
}

std::shared_ptr<ModelParallel> parts(Placement placement, std::optional<PipelineOptions> pipeline = {}) {
  return std::make_shared<ModelParallel>(ModelParallelOptions{.placement = std::move(placement), .pipeline = pipeline});
}

void expect_near(const Result& one, const Result& other, double tolerance, const std::string& what) {
  ASSERT_EQ(one.weights.tensors.size(), other.weights.tensors.size()) << what;
  for (const auto& [name, tensor] : one.weights.tensors) {
    const double largest = (tensor - other.weights.tensors.at(name)).abs().max().item<double>();
    EXPECT_LE(largest, tolerance) << what << ": " << name;
  }
}

TEST(LoRAInParts, IsBitwiseIdenticalToOneDevice) {
  for (const double dropout : {0.0, 0.4}) {
    LoRAOptions options = all_layers();
    options.lora_dropout = dropout;
    const Result alone = train(options, nullptr, 1);
    EXPECT_GT(alone.weights.tensors.at("conv.1.lora_B.weight").abs().max().item<float>(), 0.001);
    for (const auto& placement : {Placement{{"tokens", 0}, {"conv", 1}, {"head", 2}},
                                  Placement{{"tokens", 2}, {"conv", 1}}, Placement{{"conv.1", 1}, {"head", 0}}}) {
      const Result parted = train(options, parts(placement), 3);
      expect_same_bits(parted.weights, alone.weights, "in parts");
      EXPECT_EQ(parted.losses, alone.losses);
    }
  }
}

TEST(LoRAInParts, APipelineTrainsTheAdaptersAlone) {
  const Result alone = train(all_layers(), nullptr, 1);
  const Result piped = train(all_layers(), parts({{"tokens", 0}, {"conv", 1}, {"head", 2}}, PipelineOptions{2}), 3);
  expect_near(piped, alone, 1e-9, "pipeline");
  EXPECT_TRUE(piped.weights.tensors.at("conv.1.weight").equal(alone.weights.tensors.at("conv.1.weight")));
  // A frozen part need not be a stage.
  LoRAOptions one = all_layers();
  one.target_modules = {"conv.1"};
  const Result stage = train(one, parts({{"conv", 1}}, PipelineOptions{2}), 2);
  expect_near(stage, train(one, nullptr, 1), 1e-9, "one stage");
  EXPECT_TRUE(holds(error_of<ConfigError>([&] {
                      (void)train(all_layers(), parts({{"conv", 1}}, PipelineOptions{2}), 2);
                    }),
                    {"tokens.0.lora_embedding_A.weight belongs to no part"}));
}

// The layers of a part are cloned for each device of its group.
TEST(LoRAInParts, APartMayBeDataParallelOverAGroup) {
  const Placement groups{{"tokens", std::vector<int64_t>{0, 1}},
                         {"conv", std::vector<int64_t>{2, 3}},
                         {"head", std::vector<int64_t>{1, 2, 3}}};
  for (const Quantize quantize : {Quantize::none, Quantize::int8}) {
    LoRAOptions options = all_layers();
    options.quantize = quantize;
    const Result alone = train(options, nullptr, 1), parted = train(options, parts(groups), 4);
    expect_near(parted, alone, quantize == Quantize::none ? 1e-9 : 1e-4, "in groups");
    EXPECT_GT(parted.weights.tensors.at("head.0.lora_B.weight").abs().max().item<float>(), 0.001);
  }
}

TEST(LoRAInParts, AModuleThatIsAdaptedAlreadyIsPlacedAgain) {
  const Placement groups{{"tokens", 1}, {"conv", std::vector<int64_t>{0, 1}}};
  expect_near(train(all_layers(), parts(groups), 2, 2), train(all_layers(), nullptr, 1, 2), 1e-9, "twice");
}

}  // namespace
}  // namespace levin::lora_parts_test
