// levin plan memory for several devices in one process: fractions of the batch, memory of each, and gathered outputs.
#include "levin/cli/commands/plan_devices.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"
#include "support/levin_runs.h"

namespace levin::plan_devices_test {
namespace {

using test::expect_parts;
using testing::ConfigFiles;

// A head whose output is 100 bytes a sample, and the loss.
ChainCost share_of(int64_t batch) {
  ChainCost cost;
  cost.batch = batch;
  cost.parameters = 1000;
  cost.gradients = 1000;
  cost.optimizer_state = 2000;
  cost.inputs = 40 * batch;  // of the whole batch on four devices
  BlockCost head;
  head.name = "head";
  head.chain = 0;
  head.output = head.output_gradient = 100 * batch;
  head.kept = 50 * batch;
  head.forward_peak = 150 * batch;
  head.gradients = 1000;
  BlockCost loss;
  loss.name = "what follows head";
  loss.keeps_input = true;
  cost.blocks = {head, loss};
  return cost;
}

TEST(PlanDevices, OnlyTheFirstHoldsTheOptimizersStateAndTheWholeBatch) {
  const auto all = predict_devices(share_of(4), share_of(2), 14, {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}, {});
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].samples, 4);
  EXPECT_EQ(all[1].samples, 4);
  EXPECT_EQ(all[2].samples, 3);
  EXPECT_EQ(all[3].samples, 3);
  EXPECT_EQ(all[0].optimizer_state, 2000);
  EXPECT_EQ(all[1].optimizer_state, 0);
  EXPECT_EQ(all[1].weights, 1000);
  EXPECT_EQ(all[1].gradients, 1000);
  // weights, state, batch, and the gradients of the step before while the share goes forward
  EXPECT_EQ(all[0].peak, 1000 + 2000 + 4 * 40 + 1000 + 4 * 150);
  EXPECT_LT(all[1].peak, all[0].peak - 2000);
  EXPECT_LT(all[3].peak, all[1].peak);
}

TEST(PlanDevices, DevicesWithoutASampleAreLeftOut) {
  EXPECT_EQ(predict_devices(share_of(4), share_of(2), 2, {"cpu:0", "cpu:1", "cpu:2"}, {}).size(), 2U);
  EXPECT_EQ(largest_share(2, 3), 1);
  EXPECT_EQ(largest_share(14, 4), 4);
}

TEST(PlanDevices, OutputsComeFromTheLastSubmoduleBeforeTheLoss) {
  const auto outputs = model_outputs(share_of(4), share_of(2), 16);
  ASSERT_TRUE(outputs.has_value());
  EXPECT_EQ(outputs->block, "head");
  EXPECT_EQ(outputs->bytes, 1600);
  EXPECT_EQ(outputs->gradient_bytes, 1600);
}

TEST(PlanDevices, ARunOfDpReportsWhatEachDeviceHoldsAndWhatGatheringWouldAdd) {
  const ConfigFiles files;
  const std::string path = files.write("run.yaml", R"(
trainer: {accelerator: cpu, devices: 4, strategy: dp}
model:
  class_path: MaskedLM
  init_args: {num_hidden_layers: 1, hidden_size: 32, num_attention_heads: 2, intermediate_size: 64, vocab_size: 1024}
data: {class_path: BibleText, init_args: {block_size: 64, batch_size: 8}}
)");
  const auto planned = [&](const std::string& arguments) {
    return test::run_levin("plan memory --config " + path + " --picture= " + arguments);
  };
  for (const std::string strategy : {"dp", "dp_balanced"}) {
    const auto ran = planned("--batch_size=32 --trainer.strategy=" + strategy);
    EXPECT_EQ(ran.status, 0) << ran.output;
    // 32 x 64 x 1024 logits of 4 bytes
    expect_parts(ran.output, {"The table is about the first device, which computes 2 of a batch's 8 samples.",
                              "measured with 2 samples a device, and the figures are for 8.",
                              strategy + " on 4 devices, a batch of 32 samples", "cpu:0         8", "cpu:3         8",
                              "The outputs of decoder for the whole batch are 8.0 MiB.",
                              "would add 8.0 MiB there, and "
                              "16.0 MiB with their gradients."});
  }
  const auto refused = planned("--trainer.strategy=ModelParallel");
  EXPECT_EQ(refused.status, 2) << refused.output;
}

}  // namespace
}  // namespace levin::plan_devices_test
