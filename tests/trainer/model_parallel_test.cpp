// strategy: ModelParallel on logical CPU devices: bitwise identical to one device, parts placed by name, clear errors.
#include "levin/strategies/device/model_parallel.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "levin/core/module_call.h"
#include "levin/trainer/fabric.h"
#include "support/parted_module.h"

namespace levin::model_parallel_test {
namespace {

using test::classes;
using test::error_of;
using test::expect_parts;
using test::PartedModule;
using test::parts_options;
using test::weights;

struct Result {
  at::Tensor weights;
  Metrics metrics;
  PlacementTrace trace;
};

Result train(Placement placement, int64_t devices, bool record = false, double dropout = 0) {
  const auto strategy = std::make_shared<ModelParallel>(ModelParallelOptions{.placement = std::move(placement)});
  strategy->set_recording(record);
  PartedModule module(dropout);
  seed_everything(7);
  Trainer trainer(parts_options(strategy, devices));
  trainer.fit(module, classes(48, 16));
  return {weights(module), trainer.callback_metrics(), strategy->trace()};
}

Result train_alone(double dropout = 0) {
  PartedModule module(dropout);
  seed_everything(7);
  Trainer trainer(parts_options(std::make_shared<SingleDeviceStrategy>(), 1));
  trainer.fit(module, classes(48, 16));
  return {weights(module), trainer.callback_metrics(), {}};
}

constexpr int64_t kSteps = 6;  // 2 epochs of 3 batches of 16 samples of 8 numbers

TEST(ModelParallel, IsBitwiseIdenticalToOneDevice) {
  const Result alone = train_alone(0.5);
  for (const auto& placement : {Placement{{"encoder", 0}, {"decoder", 1}}, Placement{{"encoder", 1}, {"decoder", 2}},
                                Placement{{"encoder.[0-1]", 1}, {"decoder", 2}}, Placement{{"*coder", 1}}}) {
    const Result parted = train(placement, 3, false, 0.5);
    EXPECT_TRUE(parted.weights.equal(alone.weights));
    EXPECT_EQ(parted.metrics, alone.metrics);
  }
}

ModelParallel two_parts(std::optional<PipelineOptions> pipeline = std::nullopt) {
  return ModelParallel({.placement = Placement{{"encoder", 1}, {"decoder", 2}}, .pipeline = pipeline});
}

// Trains by `step`, which gets a batch, with Fabric.
at::Tensor train_with_fabric(ModelParallel strategy, double dropout,
                             const std::function<void(Fabric&, PartedModule&, const Batch&)>& step) {
  PartedModule module(dropout);
  seed_everything(7);
  Fabric fabric({.strategy = std::move(strategy), .devices = 3});
  (void)fabric.setup(module, module.configure_optimizers());
  FabricLoader loader = fabric.setup_dataloaders(classes(48, 16));
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) step(fabric, module, batch);
  }
  return weights(module);
}

TEST(ModelParallel, FabricEndsWithTheTrainersWeights) {
  const at::Tensor alone = train_alone(0.5).weights;
  const auto by_step = [](Fabric& fabric, PartedModule&, const Batch& batch) { (void)fabric.step(batch); };
  const auto by_closure = [](Fabric& fabric, PartedModule& module, const Batch& batch) {
    (void)fabric.step(batch, [&](const Batch& each) {
      return torch::nn::functional::cross_entropy(module.forward(each[0]), each[1]);
    });
  };
  const auto by_hand = [](Fabric& fabric, PartedModule& module, const Batch& batch) {
    fabric.optimizers()[0].zero_grad();
    fabric.backward(torch::nn::functional::cross_entropy(module.forward(batch[0]), batch[1]));
    fabric.optimizers()[0].step();
  };
  EXPECT_TRUE(train_with_fabric(two_parts(), 0.5, by_step).equal(alone));
  EXPECT_TRUE(train_with_fabric(two_parts(), 0.5, by_closure).equal(alone));
  EXPECT_TRUE(train_with_fabric(two_parts(), 0.5, by_hand).equal(alone));
  expect_parts(error_of<Error>([&] { (void)train_with_fabric(two_parts(PipelineOptions{4}), 0, by_hand); }),
               {"Fabric.backward: the pipeline of ModelParallel", "only Fabric.step", "leave pipeline unset"});
}

TEST(ModelParallel, FabricsPipelineEndsWithTheTrainersWeights) {
  PartedModule module;
  seed_everything(7);
  Trainer(parts_options(std::make_shared<ModelParallel>(two_parts(PipelineOptions{4})), 3))
      .fit(module, classes(48, 16));
  EXPECT_TRUE(
      train_with_fabric(two_parts(PipelineOptions{4}), 0, [](Fabric& fabric, PartedModule&, const Batch& batch) {
        (void)fabric.step(batch);
      }).equal(weights(module)));
}

TEST(ModelParallel, FabricPlacesOneModule) {
  PartedModule module, other;
  Fabric fabric({.strategy = two_parts(), .devices = 3});
  (void)fabric.setup(module);
  expect_parts(error_of<Error>([&] { (void)fabric.setup(other, {}, "other"); }),
               {"Fabric.setup: ModelParallel places the parts of one module", "submodules"});
}

TEST(ModelParallel, MovesTensorsAtTheBordersOnly) {
  const int64_t hidden = 16 * 8 * 4, logits = 16 * 3 * 4;  // bytes
  // The batch is on the first device, and the loss is computed there.
  Result result = train({{"encoder", 0}, {"decoder", 1}}, 2);
  EXPECT_EQ(result.trace.transfers, 2 * kSteps);
  EXPECT_EQ(result.trace.transferred_bytes, (hidden + logits) * kSteps);
  result = train({{"encoder", 1}, {"decoder", 2}}, 3);
  EXPECT_EQ(result.trace.transfers, 4 * kSteps);
  EXPECT_EQ(train({{"*coder", 0}}, 1).trace.transfers, 0);
  // Blocks of a Sequential hand over directly: in, from 1 to 2, out.
  result = train({{"encoder.0", 1}, {"encoder.[1-2]", 2}}, 3);
  EXPECT_EQ(result.trace.transfers, 3 * kSteps);
  EXPECT_EQ(result.trace.transferred_bytes, 3 * hidden * kSteps);
  // A block that no name places is where the batch is: out to 1, back for block 1, and block 2 on 1.
  result = train({{"encoder.0", 1}, {"encoder.2", 1}}, 2);
  EXPECT_EQ(result.trace.transfers, 4 * kSteps);
}

TEST(ModelParallel, RunsEachPartOnItsSlot) {
  const Result result = train({{"encoder", 1}, {"encoder.1", 2}, {"decoder", 0}}, 3, /*record=*/true);
  std::set<std::string> seen;
  for (const auto& event : result.trace.events) seen.insert(event.part + " " + event.slot);
  // Blocks next to a block on a different device stay on the device of their Sequential.
  EXPECT_EQ(seen, (std::set<std::string>{"decoder cpu:0", "encoder cpu:1", "encoder.0 cpu:1", "encoder.1 cpu:2",
                                         "encoder.2 cpu:1"}));
}

TEST(ModelParallel, APartMayBeDataParallelOverAGroup) {
  const Result alone = train_alone();
  const Result groups =
      train({{"encoder", std::vector<int64_t>{0, 1}}, {"decoder", std::vector<int64_t>{2, 3}}}, 4, true);
  EXPECT_TRUE(torch::allclose(groups.weights, alone.weights, 1e-5, 1e-6));
  // Encoder: one share out, one back. Decoder: two out, one to the group's first, and the result back.
  EXPECT_EQ(groups.trace.transfers, 6 * kSteps);
  std::set<std::string> seen;
  for (const auto& event : groups.trace.events) seen.insert(event.part + " " + event.slot);
  EXPECT_EQ(seen, (std::set<std::string>{"decoder cpu:2", "decoder cpu:3", "encoder cpu:0", "encoder cpu:1"}));
}

TEST(ModelParallel, LeavesAModuleAloneThatPlacesItself) {
  struct Elsewhere : torch::nn::Module {  // on the only other device there is everywhere
    at::Tensor weight{register_parameter("weight", torch::empty({2}, at::kMeta))};
  } module;
  ModelParallel manual;
  manual.placement().use_slots(cpu_slots(2));
  manual.placement().place(module);
  EXPECT_TRUE(module.weight.is_meta());
  EXPECT_FALSE(CallActions::any());
  SingleDeviceStrategy single;
  EXPECT_ANY_THROW(single.placement().place(module));  // moving it shows: meta tensors have no values to move

  PartedModule own;
  Trainer trainer(parts_options(std::make_shared<ModelParallel>(), 2));
  seed_everything(7);
  trainer.fit(own, classes(48, 16));
  EXPECT_TRUE(weights(own).equal(train_alone().weights));
}

TEST(ModelParallel, EndsWithNoActionLeft) {
  (void)train({{"encoder", 1}}, 2);
  EXPECT_FALSE(CallActions::any());
  PartedModule module;
  module.on_encode = [] { throw std::runtime_error("a fault in the part"); };
  const auto strategy = std::make_shared<ModelParallel>(ModelParallelOptions{.placement = Placement{{"encoder.*", 1}}});
  Trainer trainer(parts_options(strategy, 2));
  expect_parts(error_of([&] { trainer.fit(module, classes(16, 16)); }), {"a fault in the part"});
  EXPECT_FALSE(CallActions::any());
  module.on_encode = nullptr;
  EXPECT_TRUE(module.forward(torch::ones({2, 8})).defined());
}

TEST(ModelParallel, AGroupEvaluatesAndPredictsToo) {
  PartedModule module;
  const auto alone =
      Trainer(parts_options(std::make_shared<SingleDeviceStrategy>(), 1)).predict(module, {classes(10, 5)});
  const auto strategy = std::make_shared<ModelParallel>(
      ModelParallelOptions{.placement = Placement{{"encoder", std::vector<int64_t>{0, 1}}, {"decoder", 1}}});
  const auto parted = Trainer(parts_options(strategy, 2)).predict(module, {classes(10, 5)});
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(torch::allclose(parted[0][k], alone[0][k], 1e-5, 1e-6));
}

// ---- what cannot be ------------------------------------------------------------------------------------------------

std::string refusal(Placement placement, int64_t devices = 2) {
  return error_of([&] { (void)train(std::move(placement), devices); });
}

TEST(Placement, AnUnknownNameIsAnErrorWithTheNearestOne) {
  expect_parts(refusal({{"encodr", 0}, {"nothing.*", 1}}),
               {"ModelParallelOptions.placement.encodr: no submodule's name matches \"encodr\"",
                "Did you mean \"encoder\"?", "placement.nothing.*", "Submodules: ", "decoder"});
}

TEST(Placement, ADeviceThatIsNotThereIsAnError) {
  expect_parts(refusal({{"encoder", 2}}),
               {"placement.encoder: 2 is not the index of a device: the run has 2 (0 to 1)"});
  expect_parts(refusal({{"encoder", std::vector<int64_t>{0, -1}}}), {"-1 is not the index of a device"});
  expect_parts(refusal({{"encoder", std::vector<int64_t>{}}}), {"the list of devices is empty"});
}

TEST(Placement, ANameWithTwoPlacesIsAnErrorUnlessItIsWrittenOut) {
  expect_parts(refusal({{"enc*", 0}, {"*coder", 1}}), {"\"*coder\" and \"enc*\" place encoder on different devices"});
  PartedModule module;
  const auto parts = placed_parts(module, {{"*", 0}, {"decoder", 1}}, cpu_slots(2), "placement");
  ASSERT_EQ(parts.size(), 3U);  // the decoder's blocks match "*"
  EXPECT_EQ(parts[0].name, "encoder");
  EXPECT_EQ(parts[1].name, "decoder");
  EXPECT_EQ(parts[1].slots[0].index, 1);
  EXPECT_TRUE(parts[2].inside_another);
}

TEST(ModelParallel, APartThatIsCalledDirectlyIsAnError) {
  PartedModule module;
  module.direct = true;
  const auto strategy = std::make_shared<ModelParallel>(ModelParallelOptions{.placement = Placement{{"decoder", 1}}});
  expect_parts(error_of([&] { Trainer(parts_options(strategy, 2)).fit(module, classes(16, 16)); }),
               {"ModelParallel: decoder on cpu:1 was not called on its device", "levin::call(module, x)"});
}

TEST(ModelParallel, ABlockOfASequentialCannotBeReplicated) {
  expect_parts(refusal({{"encoder.0", std::vector<int64_t>{0, 1}}}),
               {"block 0 of a torch::nn::Sequential cannot be computed by replicas", "Place the whole Sequential"});
}

TEST(ModelParallel, RefusesOptionsThatContradictEachOther) {
  expect_parts(error_of([] { ModelParallel({.placement = "automatic"}); }),
               {"ModelParallelOptions.placement", "manual, or a map of names to devices", "automatic"});
  expect_parts(error_of([] { ModelParallel({.pipeline = PipelineOptions{}}); }),
               {"ModelParallelOptions.pipeline: requires a placement"});
}

TEST(ModelParallel, ReadsItsPlacementFromARunFile) {
  add_builtins();
  ConfigNode places = ConfigNode::map();
  places.set("encoder", ConfigNode::list({ConfigNode::scalar("0"), ConfigNode::scalar("1")}));
  places.set("decoder", ConfigNode::scalar("2"));
  ConfigNode args = ConfigNode::map();
  args.set("placement", places);
  ModelParallelOptions options;
  Problems problems;
  ASSERT_TRUE(read_options(args, options, "strategy", problems));
  const auto& read = std::get<Placement>(options.placement);
  EXPECT_EQ(std::get<int64_t>(read.at("decoder")), 2);
  EXPECT_EQ(std::get<std::vector<int64_t>>(read.at("encoder")), (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(write_options(options).find("placement")->same_as(places));
}

}  // namespace
}  // namespace levin::model_parallel_test
