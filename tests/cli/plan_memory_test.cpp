// levin plan memory: the table of given numbers, the chart, the run file it writes, and a run measured here.
#include "levin/cli/commands/plan_memory.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/recompute/memory_picture.h"
#include "support/levin_runs.h"
#include "support/paths.h"

namespace levin::plan_memory_test {
namespace {

using test::expect_parts;
using testing::ConfigFiles;

constexpr int64_t kMiB = 1 << 20;

// Four blocks that keep 10 MiB and pass on 1, for a batch of 8; half of that for 4.
ChainCost chain(int64_t batch) {
  ChainCost cost;
  cost.batch = batch;
  cost.parameters = 3 * kMiB;
  for (int k = 0; k < 4; ++k) {
    BlockCost block;
    block.name = "h." + std::to_string(k);
    block.chain = 0;
    block.kept = 10 * kMiB * batch / 8;
    block.output = block.output_gradient = kMiB * batch / 8;
    block.keeps_input = true;
    block.forward_peak = 11 * kMiB * batch / 8;
    block.segment_forward_peak = 2 * kMiB * batch / 8;
    block.backward_peak = kMiB * batch / 8;
    block.again_peak = 11 * kMiB * batch / 8;
    block.forward_s = block.segment_forward_s = block.again_s = 0.010;
    block.backward_s = 0.020;
    cost.blocks.push_back(block);
  }
  return cost;
}

MeasuredMemory measured(const std::string& config = "") {
  return {chain(8), chain(4), {100 * kMiB, true}, "Net", "cpu", config};
}

// The exit code and what was printed.
std::pair<int, std::string> plan(std::vector<std::string> arguments, const MeasuredMemory& seen = measured()) {
  std::string output;
  Console::instance().capture([&](const std::string& line) { output += line + "\n"; });
  arguments.emplace_back("--config=run.yaml");
  const int code = run_plan_memory(arguments, 100, [&](const auto&) { return seen; });
  Console::instance().capture({});
  return {code, output};
}

TEST(PlanMemory, SaysPeaksTimesAndBatchesOfEachPlan) {
  const auto [code, output] = plan({"--budget=30MiB", "--picture="});
  EXPECT_EQ(code, kExitOk) << output;
  // Nothing again: 40 + 3 borders + the gradient + 1 + 3 of parameters. Each block: 3 borders + 11 + 1 + 3.
  expect_parts(
      output, {"Net on cpu, 4 blocks: parameters 3.0 MiB", "a batch of 8 samples", "Budget 30.0 MiB.",
               "no recomputation              0        48.0 MiB   120.0 ms    0.0 %               4",
               "each block                    4        18.0 MiB   160.0 ms   33.3 %", "√n segments                   1",
               "least memory", "best under the budget", "best: recompute h."});
}

TEST(PlanMemory, TheRunsOwnRecomputationIsALine) {
  MeasuredMemory seen = measured();
  seen.own_segments = {{"h.0"}, {"h.1", "h.2"}, {"h.2"}};  // the last one within another
  const auto lines = plan_memory(seen, {100 * kMiB});
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[4].name, "the run's recompute");
  EXPECT_EQ(lines[4].segments, (Segments{{0, 0}, {1, 2}}));
  EXPECT_EQ(lines[4].prediction.peak, predict_memory(chain(8), {{0, 0}, {1, 2}}).peak);
  EXPECT_EQ(plan_memory(measured(), {100 * kMiB}).size(), 5U);
}

TEST(PlanMemory, FollowsTheRecomputationOfTheRunFile) {
  const auto planned = [](const std::string& arguments) {
    return test::run_levin("plan memory --config " + test::source_dir() +
                           "/configs/paddle_recompute.yaml --picture= --data.batch_size=1024 " + arguments);
  };
  const auto own = planned("");
  EXPECT_EQ(own.status, 0) << own.output;
  expect_parts(own.output, {"the run's recompute           2 "});
  const auto none = planned("--trainer.recompute=null");
  EXPECT_EQ(none.output.find("the run's recompute"), std::string::npos) << none.output;
  const auto kept = planned("--trainer.recompute.keep=matmul");
  EXPECT_EQ(kept.output.find("the run's recompute  "), std::string::npos) << kept.output;
  expect_parts(kept.output, {"The run's recompute keeps more than inputs"});
}

TEST(PlanMemory, WithoutABudgetItIsWhatTheDeviceHasFree) {
  const auto [code, output] = plan({"--picture="});
  EXPECT_EQ(code, kExitOk);
  expect_parts(output, {"Budget 100.0 MiB, 9/10 of what is free.", "best: nothing has to be computed again."});
}

TEST(PlanMemory, ABudgetThatCannotBeMetReportsTheLeastPeakAndWhatElseHelps) {
  const auto [code, output] = plan({"--budget", "12MiB", "--picture="});
  EXPECT_EQ(code, kExitBadConfig);
  expect_parts(output, {"--budget: 12.0 MiB cannot be met", "the least peak of a step", "of its 4 blocks, is ",
                        "parameters, gradients and optimizer state are 3.0 MiB", "A batch_size of ",
                        "instead of 8 fits", "bf16-mixed"});
}

TEST(PlanMemory, DrawsThePlans) {
  const ConfigFiles files;
  const std::string path = files.write("picture.svg", "");
  const auto [code, output] = plan({"--budget=30MiB", "--picture=" + path});
  EXPECT_EQ(code, kExitOk);
  expect_parts(output, {"memory over the step: " + path});
  expect_parts(read_file(path), {"<svg xmlns=", "Net, batch of 8", "memory held, MiB", "time in the step, ms",
                                 "no recomputation, 48.0 MiB", "√n segments", "budget, 30.0 MiB", "parameters, 3.0 MiB",
                                 "gradients", "optimizer state", "<polyline", "</svg>"});
}

TEST(PlanMemory, TheChartGoesThroughThePeak) {
  ChainCost cost = chain(8);
  const MemoryPrediction plain = predict_memory(cost, {});
  int64_t most = 0;
  for (const CurvePoint& point : plain.curve) most = std::max(most, point.bytes);
  EXPECT_EQ(most, plain.peak);
  EXPECT_DOUBLE_EQ(plain.curve.back().seconds, plain.seconds);
  const std::string text = draw_memory({"A & <b>", &cost, {{"plain", plain}}, std::nullopt});
  expect_parts(text, {"A &amp; &lt;b&gt;"});
  EXPECT_EQ(text.find("budget"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
}

TEST(PlanMemory, AppliesThePlanToACopyOfTheRunFile) {
  const ConfigFiles files;
  const std::string path = files.write("run.yaml", "# my run\ntrainer:\n  max_epochs: 3  # enough\nmodel: Net\n");
  const auto [code, output] = plan({"--budget=18MiB", "--picture=", "--apply"}, measured(path));
  EXPECT_EQ(code, kExitOk) << output;
  const std::string planned = path.substr(0, path.size() - 5) + ".planned.yaml";
  expect_parts(output, {"written: " + planned});
  expect_parts(read_file(planned),
               {"# my run\ntrainer:\n  recompute: {modules: [\"h.", "  max_epochs: 3  # enough\nmodel: Net\n"});
  EXPECT_EQ(read_file(path), "# my run\ntrainer:\n  max_epochs: 3  # enough\nmodel: Net\n");
}

TEST(PlannedConfig, LeavesEverythingElseUnchanged) {
  const std::vector<std::string> modules = {"h.0..h.2", "h.4"};
  const std::string key = "recompute: {modules: [\"h.0..h.2\", \"h.4\"]}";
  auto planned = [&](const std::string& text) { return with_recompute(text, "run.yaml", modules); };
  EXPECT_EQ(planned("model: A\n"), "model: A\ntrainer:\n  " + key + "\n");
  EXPECT_EQ(planned("trainer: {max_epochs: 1}  # b\n"), "trainer: {" + key + ", max_epochs: 1}  # b\n");
  EXPECT_EQ(planned("trainer: {}\n"), "trainer: {" + key + "}\n");
  EXPECT_EQ(planned("trainer:\n    # why\n    max_epochs: 1\n"),
            "trainer:\n    " + key + "\n    # why\n    max_epochs: 1\n");
  EXPECT_EQ(
      planned("trainer:\n  max_epochs: 1\n  recompute:\n    budget: 3GiB  # old\n\n  # kept\n  devices: 1\nmodel: A\n"),
      "trainer:\n  max_epochs: 1\n  " + key + "\n\n  # kept\n  devices: 1\nmodel: A\n");
  EXPECT_EQ(with_recompute("trainer:\n  recompute: auto\n  devices: 1\n", "run.yaml", {}), "trainer:\n  devices: 1\n");
}

TEST(PlannedConfig, ALongPlanIsAListInLines) {
  std::vector<std::string> modules;
  for (int k = 0; k < 8; ++k) modules.push_back("h." + std::to_string(k));
  expect_parts(with_recompute("trainer:\n  devices: 1\n", "run.yaml", modules),
               {"trainer:\n  recompute:\n    modules:\n      - \"h.0\"\n", "      - \"h.7\"\n  devices: 1\n"});
}

TEST(PlannedConfig, ReportsWhatToWriteWhereItCannotBeWritten) {
  try {
    (void)with_recompute("trainer: {recompute: auto,\n  devices: 1}\n", "run.yaml", {"h.0"});
    FAIL();
  } catch (const ConfigError& error) {
    expect_parts(error.what(), {"run.yaml: the plan cannot be written", "{modules: [\"h.0\"]}"});
  }
}

TEST(PlanMemory, ReportsWhatIsWrongWithTheArguments) {
  std::string output;
  Console::instance().capture([&](const std::string& line) { output += line + "\n"; });
  const MeasureMemory none = [](const auto&) { return MeasuredMemory(); };
  EXPECT_EQ(run_plan_memory({}, 100, none), kExitBadConfig);
  EXPECT_EQ(run_plan_memory({"--config=a", "--budget=11 potatoes"}, 100, none), kExitBadConfig);
  EXPECT_EQ(run_plan_memory({"--config=a", "--budget"}, 100, none), kExitBadConfig);
  EXPECT_EQ(run_plan_memory({"--model=A", "--apply"}, 100, none), kExitBadConfig);
  EXPECT_EQ(run_plan_memory({"--help"}, 100, none), kExitOk);
  Console::instance().capture({});
  expect_parts(output, {"no run to measure. Give --config FILE.", "11 potatoes", "--budget: no value follows",
                        "no run file to copy", "levin plan memory --config FILE"});
}

TEST(PlanMemory, MeasuresARunOfTheTool) {
  const ConfigFiles files;
  const std::string path = files.write("run.yaml", R"(
trainer: {max_epochs: 1}
model:
  class_path: Classifier
  init_args: {hidden: 64}
data:
  class_path: FashionMnist
  init_args: {batch_size: 64}
)");
  const std::string picture = files.write("plan.svg", "");
  const auto ran = test::run_levin("plan memory --config " + path + " --picture " + picture);
  EXPECT_EQ(ran.status, 0) << ran.output;
  expect_parts(ran.output, {"Classifier on cpu", "a batch of 64 samples", "no recomputation", "each block",
                            "√n segments", "Measured on the largest of the first 32 batches."});
}

// The bytes that a plan without recomputation needs: "…   455.1 KiB".
double peak_in(const std::string& output) {
  const size_t line = output.find("no recomputation");
  EXPECT_NE(line, std::string::npos) << output;
  double number = 0;
  char unit[8] = {};
  EXPECT_EQ(std::sscanf(output.c_str() + line, "no recomputation %*d %lf %7s", &number, unit), 2) << output;
  const std::string name = unit;
  return number * (name == "KiB" ? 1024 : name == "MiB" ? 1 << 20 : 1 << 30);
}

TEST(PlanMemory, FollowsWhatTheRunSetsAndRefusesWhatItCannotPlan) {
  const ConfigFiles files;
  const std::string path = files.write("run.yaml", R"(
trainer: {max_epochs: 1}
model: {class_path: Classifier, init_args: {hidden: 512}}
data: {class_path: FashionMnist, init_args: {batch_size: 64}}
)");
  const auto planned = [&](const std::string& arguments) {
    return test::run_levin("plan memory --config " + path + " --picture= " + arguments);
  };
  const auto plain = planned("");
  ASSERT_EQ(plain.status, 0) << plain.output;
  const auto average = planned("--trainer.callbacks=EMAWeightAveraging");
  EXPECT_EQ(average.status, 0) << average.output;
  expect_parts(average.output, {", callbacks "});
  EXPECT_GT(peak_in(average.output), 1.1 * peak_in(plain.output));
  const auto parts = planned("--trainer.micro_batch_size=16");
  EXPECT_EQ(parts.status, 0) << parts.output;
  expect_parts(parts.output, {"a batch of 16 samples", "micro_batch_size: a batch of 64 samples goes through"});
  const auto ranks = planned("--trainer.devices=2");
  EXPECT_EQ(ranks.status, 0) << ranks.output;
  EXPECT_GE(peak_in(ranks.output), peak_in(plain.output));
  const auto refused = planned("--trainer.devices=2 --trainer.strategy=fsdp");
  EXPECT_EQ(refused.status, 2) << refused.output;
  expect_parts(refused.output, {"trainer.strategy: ", "fsdp", "one device only", "--trainer.strategy=ddp"});
}

}  // namespace
}  // namespace levin::plan_memory_test
