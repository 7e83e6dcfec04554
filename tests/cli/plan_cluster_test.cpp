// levin plan cluster: the closed forms with given arguments, and a run that is measured here.
#include "levin/cli/commands/plan_cluster.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "support/levin_runs.h"
#include "support/paths.h"

namespace levin {
namespace {

using test::expect_parts;

// The exit code and what was printed.
std::pair<int, std::string> plan(const std::vector<std::string>& arguments, const MeasureRun& measure = nullptr) {
  std::string output;
  Console::instance().capture([&](const std::string& line) { output += line + "\n"; });
  const int code = run_plan_cluster(arguments, 100, measure);
  Console::instance().capture({});
  return {code, output};
}

test::Ran tool(const std::string& arguments) {
  return test::run_levin("plan cluster " + arguments);
}

// 1000 parameters of 4 bytes over links that only have a latency: 1 ms each message.
const std::vector<std::string> kLatencyOnly = {"--parameters=1000",
                                               "--batch_size=16",
                                               "--forward_ms=10",
                                               "--backward_ms=24",
                                               "--bandwidth=1e9",
                                               "--inside_bandwidth",
                                               "1e9",
                                               "--latency_us=1000",
                                               "--inside_latency_us=1000",
                                               "--devices_per_node=2"};

TEST(PlanCluster, MatchesTheClosedForms) {
  auto arguments = kLatencyOnly;
  arguments.emplace_back("--nodes=1,3");
  const auto [code, output] = plan(arguments);
  EXPECT_EQ(code, kExitOk) << output;
  // 2 devices: 2 messages; 6 devices: 2 (1 + 2). Stage 3 sends 3/2 as many, none of them hidden in one unit.
  // Stages 1 and 2 send as many as ddp, the gathering after the update.
  expect_parts(output,
               {"1000 parameters, 0.0 MB to send, by fsdp in 1 unit.", "16 samples in 34.00 ms",
                "1        2            32 |    36.00 ms   94.4 % |    36.00 ms   94.4 % |    37.00 ms   91.9 %",
                "3        6            96 |    40.00 ms   85.0 % |    40.00 ms   85.0 % |    43.00 ms   79.1 %"});
}

TEST(PlanCluster, FasterDevicesComputeFasterAndSendAsBefore) {
  auto arguments = kLatencyOnly;
  arguments.insert(arguments.end(), {"--nodes=1", "--device_speed=10"});
  expect_parts(plan(arguments).second, {"16 samples in 3.40 ms", "5.40 ms   63.0 %"});
}

TEST(PlanCluster, WhatIsGivenCountsBeforeWhatWasMeasured) {
  std::vector<std::string> run;
  const auto measure = [&](const std::vector<std::string>& arguments) {
    run = arguments;
    return MeasuredStep{
        .parameters = 5, .bytes = 2, .batch_size = 8, .units = 12, .forward_ms = 1, .backward_ms = 2, .other_ms = 4};
  };
  const auto [code, output] =
      plan({"--config", "a.yaml", "--nodes=1", "--trainer.precision=64-true", "--backward_ms=3"}, measure);
  EXPECT_EQ(code, kExitOk);
  EXPECT_EQ(run, (std::vector<std::string>{"--config", "a.yaml", "--trainer.precision=64-true"}));
  expect_parts(output, {"5 parameters", "in 12 units", "8 samples in 8.00 ms (forward 1.00 ms, backward 3.00 ms"});
}

// A model of GPT-3 medium's size: gathered in the parts that fsdp makes of it, most of what is sent is hidden, as with
// ddp; in a single part none of it is.
TEST(PlanCluster, TakesTheUnitsThatFsdpMakes) {
  PlanClusterOptions options{.parameters = 350'000'000, .forward_ms = 100, .backward_ms = 200, .nodes = {8}};
  const ClusterLine by_default = plan_cluster(options, 0)[0];
  options.units = 54;  // 1.4 GB in parts of 25 MiB
  EXPECT_EQ(by_default.fsdp_3.step, plan_cluster(options, 0)[0].fsdp_3.step);
  options.units = 1;
  EXPECT_GT(by_default.fsdp_3.efficiency, 1.5 * plan_cluster(options, 0)[0].fsdp_3.efficiency);
  EXPECT_GT(by_default.fsdp_3.efficiency, 0.7 * by_default.ddp.efficiency);
  EXPECT_LT(by_default.fsdp_3.efficiency, by_default.ddp.efficiency);
  expect_parts(plan({"--parameters=350000000", "--forward_ms=100", "--backward_ms=200"}).second, {"in 54 units"});
}

TEST(PlanCluster, TellsEveryMistakeAndPlansNothing) {
  const auto [code, output] = plan({"--devices_per_node=0", "--nodes=2,x", "--bandwidth=-1"});
  EXPECT_EQ(code, kExitBadConfig);
  expect_parts(output, {"devices_per_node", "must be >= 1, got 0", "nodes", "bandwidth", "nothing was planned"});
  EXPECT_EQ(output.find("efficiency"), std::string::npos);
  expect_parts(plan({}).second, {"the times of a step are not known", "--config FILE"});
  expect_parts(plan({"--forward_ms=1"}).second, {"the number of parameters is not known"});
  expect_parts(plan({"--nodes"}).second, {"--nodes: no value follows"});
}

TEST(PlanCluster, HelpListsEveryOption) {
  const std::string output = plan({"--help"}).second;
  for (const auto& name : field_names<PlanClusterOptions>()) EXPECT_NE(output.find(name), std::string::npos) << name;
}

TEST(PlanCluster, MeasuresARunOfTheTool) {
  const auto done =
      tool("--config " + test::source_dir() + "/configs/fashion_mnist.yaml --data.batch_size=32 --nodes=1,128");
  EXPECT_EQ(done.status, 0) << done.output;
  expect_parts(done.output, {"203530 parameters, 0.8 MB to send, by fsdp in 1 unit. One device: 32 samples in",
                             "128     1024         32768 |"});
}

TEST(PlanCluster, AMistakeOfTheRunIsReportedAsInAFit) {
  const auto done = tool("--model=Nobody");
  EXPECT_EQ(done.status, kExitBadConfig);
  expect_parts(done.output, {"Nobody"});
  const auto other = test::run_levin("plan clusters");
  EXPECT_EQ(other.status, kExitBadConfig);
  expect_parts(other.output, {"\"clusters\" cannot be planned. Use levin plan cluster"});
  for (const char* arguments : {"help plan", "plan --help"}) {
    const auto both = test::run_levin(arguments);
    EXPECT_EQ(both.status, 0);
    expect_parts(both.output, {"levin plan cluster", "levin plan memory", "--help"});
  }
}

}  // namespace
}  // namespace levin
