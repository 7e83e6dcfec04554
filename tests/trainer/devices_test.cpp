// The devices that a run gets for its options. GPUs come from a library that stands in for NVIDIA's driver.
#include "levin/trainer/plan/devices.h"

#include <gtest/gtest.h>

#include "levin/core/gpu.h"
#include "levin/trainer/plan/rank_plan.h"
#include "levin/trainer/plan/run_plan.h"
#include "support/error_text.h"
#include "support/stand_in_driver.h"

namespace levin::devices_test {
namespace {

using test::has;

[[maybe_unused]] const bool registered = (add_builtins(), true);

using Gpus = std::vector<int64_t>;

struct Resolved {
  RunPlan plan;
  std::string problem;  // the first
  size_t problems = 0;
};

// What follows from `options` once the accelerator is known.
Resolved resolve(TrainerOptions options, const std::string& device) {
  options.oversubscribe = true;  // the tests' machine may have one core
  Resolved resolved;
  resolved.plan.device = device;
  Problems problems;
  resolve_ranks(options, resolved.plan, problems);
  resolved.problems = problems.size();
  if (!problems.empty()) resolved.problem = problems.lines()[0];
  return resolved;
}

Gpus gpus_of(const TrainerOptions& options) {
  const Resolved resolved = resolve(options, "cuda");
  EXPECT_EQ(resolved.problem, "");
  return resolved.plan.device_indices;
}

TEST(Accelerator, AGpuThatCannotBeUsedIsRefusedWithTheReason) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "this machine has a GPU and this build the CUDA component";
  for (const char* name : {"gpu", "cuda"}) {
    RunPlan plan;
    Problems problems;
    resolve_accelerator({.accelerator = name}, plan, problems);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_TRUE(has(problems.lines()[0], std::string("TrainerOptions.accelerator: ") + name + ": " + why_no_gpu()))
        << problems.lines()[0];
    EXPECT_EQ(plan.device, "cpu");
  }
}

TEST(Accelerator, AutoIsTheCpuWhereNoGpuCanBeUsed) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "this machine has a GPU and this build the CUDA component";
  RunPlan plan;
  Problems problems;
  resolve_accelerator({.accelerator = "auto"}, plan, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(plan.device, "cpu");
}

TEST(Devices, OnACpuTheyAreANumberOfRanks) {
  EXPECT_EQ(resolve({.devices = "auto"}, "cpu").plan.devices, 1);
  EXPECT_EQ(resolve({.devices = int64_t{3}}, "cpu").plan.devices, 3);
  EXPECT_EQ(resolve({.devices = " 2"}, "cpu").plan.devices, 2);
  EXPECT_EQ(resolve({.devices = "0,1"}, "cpu").plan.devices, 2);
  EXPECT_EQ(resolve({.devices = Gpus{0, 1, 2}}, "cpu").plan.devices, 3);
  EXPECT_TRUE(resolve({.devices = "0,1"}, "cpu").plan.device_indices.empty());
}

TEST(Devices, WhatIsNotADeviceIsRefusedWithWhatWasSeen) {
  auto problem = [](const TrainerOptions& options) { return resolve(options, "cpu").problem; };
  EXPECT_TRUE(has(problem({.devices = "two"}), "\"two\" is not a number of devices"));
  EXPECT_TRUE(has(problem({.devices = "0,x"}), "\"0,x\" is not a number of devices"));
  EXPECT_TRUE(has(problem({.devices = ""}), "\"\" is not a number of devices"));
  EXPECT_TRUE(has(problem({.devices = int64_t{-2}}), "-2 is not a number of devices"));
  EXPECT_TRUE(has(problem({.devices = Gpus{}}), "an empty list is not a number of devices"));
}

// In a process with a driver that has two GPUs.
TEST(Devices, DISABLED_GpusAreTheRequestedOnes) {
  EXPECT_EQ(gpus_of({.devices = int64_t{1}}), (Gpus{0}));
  EXPECT_EQ(gpus_of({.devices = int64_t{2}}), (Gpus{0, 1}));
  EXPECT_EQ(gpus_of({.devices = int64_t{-1}}), (Gpus{0, 1}));
  EXPECT_EQ(gpus_of({.devices = "-1"}), (Gpus{0, 1}));
  EXPECT_EQ(gpus_of({.devices = "1"}), (Gpus{0})) << "a number of GPUs, as in Lightning";
  EXPECT_EQ(gpus_of({.devices = "1,"}), (Gpus{1})) << "an index";
  EXPECT_EQ(gpus_of({.devices = "1, 0"}), (Gpus{1, 0}));
  EXPECT_EQ(gpus_of({.devices = gpus({1})}), (Gpus{1}));
}
TEST(Devices, DISABLED_AutoIsEveryGpuUnlessOneProcessHasToDo) {
  const Resolved all = resolve({}, "cuda");
  EXPECT_EQ(all.plan.strategy, "ddp");
  EXPECT_EQ(all.plan.devices, 2);
  EXPECT_EQ(all.plan.device_indices, (Gpus{0, 1}));
  const Resolved one = resolve({.strategy = "single_device"}, "cuda");
  EXPECT_EQ(one.problem, "");
  EXPECT_EQ(one.plan.devices, 1);
  EXPECT_EQ(one.plan.device_indices, (Gpus{0}));
  EXPECT_EQ(resolve({.devices = Gpus{1}}, "cuda").plan.strategy, "single_device");
}
TEST(Devices, DISABLED_GpusThatAreNotThereAreNamed) {
  auto problem = [](const TrainerOptions& options) { return resolve(options, "cuda").problem; };
  EXPECT_TRUE(has(problem({.devices = Gpus{3}}), "GPU 3 was asked for; there are 2 GPUs (0 to 1)"));
  EXPECT_TRUE(has(problem({.devices = "0,-1"}), "GPU -1 was asked for; there are 2 GPUs"));
  EXPECT_TRUE(has(problem({.devices = Gpus{0, 0}}), "GPU 0 is named twice"));
  EXPECT_TRUE(has(problem({.devices = int64_t{4}}), "4 were asked for; there are 2 GPUs"));
}
TEST(Devices, OfADriverWithTwoGpus) {
  EXPECT_EQ(test::with_stand_in_driver("Devices.DISABLED_*", 2), 0);
}

// In a process with a driver that has one.
TEST(OneGpu, DISABLED_AutoIsTheOnlyGpu) {
  EXPECT_EQ(resolve({}, "cuda").plan.strategy, "single_device");
  EXPECT_EQ(gpus_of({}), (Gpus{0}));
  EXPECT_TRUE(has(resolve({.devices = int64_t{2}}, "cuda").problem, "2 were asked for; there is 1 GPU (0)"));
}
TEST(OneGpu, AutoIsIt) {
  EXPECT_EQ(test::with_stand_in_driver("OneGpu.DISABLED_*", 1), 0);
}

}  // namespace
}  // namespace levin::devices_test
