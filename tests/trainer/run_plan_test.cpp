// The options of a Trainer, how they are resolved, and the message for each mistake.
#include "levin/trainer/plan/run_plan.h"

#include <gtest/gtest.h>

#include "levin/core/process/threads.h"
#include "levin/trainer/loops/validation_schedule.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "support/error_text.h"
#include "support/field_count.h"

namespace levin::run_plan_test {
namespace {

using test::error_of;
using test::has;

// A plan names classes; without a Trainer nothing else registers them.
[[maybe_unused]] const bool registered = (add_builtins(), true);

/// The lines of the ConfigError that resolve_plan throws; none if it accepts.
std::vector<std::string> problems_of(const TrainerOptions& options) {
  try {
    (void)resolve_plan(options);
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

/// One problem that holds all parts.
::testing::AssertionResult refuses(const TrainerOptions& options, const std::vector<std::string>& parts) {
  const std::vector<std::string> problems = problems_of(options);
  if (problems.size() != 1) {
    return ::testing::AssertionFailure() << problems.size() << " problems: " << ::testing::PrintToString(problems);
  }
  for (const auto& part : parts) {
    if (problems[0].find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "\"" << part << "\" is not in: " << problems[0];
    }
  }
  return ::testing::AssertionSuccess();
}

BatchLimit batches(int64_t count) {
  return count;
}

TEST(RunPlan, DefaultsAreLightnings) {
  const RunPlan plan = resolve_plan({});
  EXPECT_EQ(plan.max_epochs, 1000);
  EXPECT_EQ(plan.max_steps, kUnlimited);
  EXPECT_EQ(plan.num_sanity_val_steps, 2);
  EXPECT_EQ(plan.log_every_n_steps, 50);
  EXPECT_EQ(plan.limit_train_batches, BatchLimit(1.0));
  EXPECT_EQ(plan.precision, "32-true");
  EXPECT_EQ(plan.device, "cpu");
  EXPECT_EQ(plan.root_dir, ".");
  EXPECT_EQ(plan.gradient_clip_val, 0);
  EXPECT_TRUE(plan.checkpointing && plan.progress_bar && plan.model_summary && plan.logging && plan.inference_mode);
  EXPECT_FALSE(plan.fast_dev_run || plan.overfit || plan.detect_anomaly);
}

TEST(RunPlan, ADifferentLimitOpensTheNumberOfEpochs) {
  EXPECT_EQ(resolve_plan({.max_steps = 10}).max_epochs, kUnlimited);
  EXPECT_EQ(resolve_plan({.max_steps = 10}).max_steps, 10);
  EXPECT_EQ(resolve_plan({.max_time = Seconds(60)}).max_epochs, kUnlimited);
  EXPECT_EQ(resolve_plan({.max_epochs = -1}).max_epochs, kUnlimited);
  EXPECT_EQ(resolve_plan({.max_epochs = 0}).max_epochs, 0);
  EXPECT_EQ(resolve_plan({.max_epochs = 3, .max_steps = 10}).max_epochs, 3);
  EXPECT_EQ(resolve_plan({.max_steps = 0}).max_steps, 0);
  EXPECT_EQ(resolve_plan({.num_sanity_val_steps = -1}).num_sanity_val_steps, kUnlimited);
}

TEST(RunPlan, RefusesNumbersOutOfRange) {
  EXPECT_TRUE(refuses({.max_epochs = -2}, {"TrainerOptions.max_epochs", "must be >= -1", "got -2"}));
  EXPECT_TRUE(refuses({.min_epochs = -1}, {"TrainerOptions.min_epochs", "must be >= 0", "got -1"}));
  EXPECT_TRUE(refuses({.max_steps = -2}, {"TrainerOptions.max_steps", "must be >= -1", "got -2"}));
  EXPECT_TRUE(refuses({.min_steps = -1}, {"TrainerOptions.min_steps", "must be >= 0", "got -1"}));
  EXPECT_TRUE(refuses({.num_nodes = 0}, {"TrainerOptions.num_nodes", "must be >= 1", "got 0"}));
  EXPECT_TRUE(
      refuses({.accumulate_grad_batches = 0}, {"TrainerOptions.accumulate_grad_batches", "must be >= 1", "got 0"}));
  EXPECT_TRUE(refuses({.gradient_clip_val = -1.0}, {"TrainerOptions.gradient_clip_val", "must be >= 0", "got -1"}));
  EXPECT_TRUE(refuses({.limit_train_batches = BatchLimit(1.5)},
                      {"TrainerOptions.limit_train_batches", "a share from 0.0 to 1.0", "got 1.5"}));
  EXPECT_TRUE(refuses({.limit_val_batches = batches(-1)}, {"TrainerOptions.limit_val_batches", "got -1"}));
  EXPECT_TRUE(refuses({.limit_test_batches = BatchLimit(-0.5)}, {"TrainerOptions.limit_test_batches", "got -0.5"}));
  EXPECT_TRUE(refuses({.limit_predict_batches = BatchLimit(2.0)}, {"TrainerOptions.limit_predict_batches", "got 2.0"}));
  EXPECT_TRUE(refuses({.overfit_batches = batches(-3)}, {"TrainerOptions.overfit_batches", "got -3"}));
  EXPECT_TRUE(refuses({.val_check_interval = 1.25}, {"TrainerOptions.val_check_interval", "got 1.25"}));
  EXPECT_TRUE(
      refuses({.check_val_every_n_epoch = 0}, {"TrainerOptions.check_val_every_n_epoch", "must be >= 1", "got 0"}));
  EXPECT_TRUE(
      refuses({.num_sanity_val_steps = -2}, {"TrainerOptions.num_sanity_val_steps", "must be >= -1", "got -2"}));
  EXPECT_TRUE(refuses({.log_every_n_steps = -1}, {"TrainerOptions.log_every_n_steps", "must be >= 0", "got -1"}));
  EXPECT_TRUE(refuses({.deterministic = "x"}, {"TrainerOptions.deterministic", "true, false or warn", "got \"x\""}));
  EXPECT_TRUE(refuses({.reload_dataloaders_every_n_epochs = -1},
                      {"TrainerOptions.reload_dataloaders_every_n_epochs", "must be >= 0", "got -1"}));
}

TEST(RunPlan, RefusesALeastNumberAboveTheLargest) {
  EXPECT_TRUE(refuses({.max_epochs = 3, .min_epochs = 5},
                      {"TrainerOptions.min_epochs", "5 is more than max_epochs, 3", "a larger max_epochs"}));
  EXPECT_TRUE(refuses({.min_epochs = 1001}, {"TrainerOptions.min_epochs", "1001 is more than max_epochs, 1000"}));
  EXPECT_TRUE(refuses({.max_steps = 10, .min_steps = 11},
                      {"TrainerOptions.min_steps", "11 is more than max_steps, 10", "a smaller min_steps"}));
  EXPECT_EQ(problems_of({.max_epochs = 1, .min_epochs = 2, .max_steps = 1, .min_steps = 2}).size(), 2U);
  EXPECT_TRUE(problems_of({.max_epochs = 5, .min_epochs = 5, .max_steps = 10, .min_steps = 10}).empty());
  EXPECT_TRUE(problems_of({.max_epochs = -1, .min_epochs = 5000, .min_steps = 5000}).empty());
  EXPECT_TRUE(refuses({.max_time = Seconds(-1.5)}, {"TrainerOptions.max_time", "must be >= 0 s, got -1.5 s."}));
  EXPECT_TRUE(problems_of({.min_epochs = 5, .fast_dev_run = true}).empty()) << "one epoch, regardless of the limits";
}

TEST(RunPlan, RefusesWhatThisBuildDoesNotHave) {
  EXPECT_TRUE(refuses({.accelerator = "cpi"},
                      {"TrainerOptions.accelerator", "Did you mean \"cpu\"?", "Known: auto, cpu, gpu, cuda"}));
  EXPECT_TRUE(refuses({.devices = int64_t{2}, .strategy = "single_device"},
                      {"TrainerOptions.devices", "2 devices were asked for", "strategy: ddp"}));
  EXPECT_TRUE(refuses({.devices = std::vector<int64_t>{0, 1}, .strategy = "single_device"},
                      {"TrainerOptions.devices", "2 devices were asked for"}));
  EXPECT_TRUE(refuses({.num_nodes = 2, .strategy = "single_device"},
                      {"TrainerOptions.num_nodes", "2 nodes need a distributed strategy", "Use ddp, or 1"}));
  EXPECT_TRUE(refuses({.devices = "two"}, {"TrainerOptions.devices", "\"two\" is not a number of devices"}));
  EXPECT_TRUE(refuses({.devices = int64_t{0}}, {"TrainerOptions.devices", "0 is not a number of devices"}));
  EXPECT_TRUE(refuses({.strategy = "dpp"}, {"TrainerOptions.strategy", "Did you mean \"ddp\"?"}));
  EXPECT_TRUE(refuses({.precision = "bf16-mixd"},
                      {"TrainerOptions.precision", "unknown precision \"bf16-mixd\"", "Did you mean \"bf16-mixed\"?",
                       "Known: 16, 16-mixed, 16-true, 32, 32-true, 64, 64-true, bf16, bf16-mixed, bf16-true"}));
}

TEST(RunPlan, TakesEveryWayToSayOneDevice) {
  EXPECT_TRUE(problems_of({.devices = int64_t{1}}).empty());
  EXPECT_TRUE(problems_of({.devices = int64_t{-1}}).empty());
  EXPECT_TRUE(problems_of({.devices = "auto"}).empty());
  EXPECT_TRUE(problems_of({.devices = "1"}).empty());
  EXPECT_TRUE(problems_of({.devices = std::vector<int64_t>{0}}).empty());
  EXPECT_TRUE(problems_of({.accelerator = "cpu"}).empty());
}

TEST(RunPlan, SeveralDevicesOrNodesMeanDdpUnlessConfiguredOtherwise) {
  EXPECT_EQ(resolve_plan({}).strategy, "single_device");
  EXPECT_EQ(resolve_plan({.devices = int64_t{2}, .oversubscribe = true}).strategy, "ddp");
  EXPECT_EQ(resolve_plan({.devices = "2", .oversubscribe = true}).devices, 2);
  EXPECT_EQ(resolve_plan({.devices = std::vector<int64_t>{0, 1, 2}, .oversubscribe = true}).devices, 3);
  const RunPlan nodes = resolve_plan({.devices = int64_t{4}, .num_nodes = 2, .oversubscribe = true});
  EXPECT_EQ(nodes.strategy, "ddp");
  EXPECT_EQ(nodes.devices, 4);
  EXPECT_EQ(nodes.num_nodes, 2);
  const RunPlan one = resolve_plan({.strategy = "ddp"});
  EXPECT_EQ(one.strategy, "ddp");
  EXPECT_EQ(one.devices, 1);
}

TEST(RunPlan, RefusesMoreRanksThanCoresUnlessTheyAreMeant) {
  const int64_t cores = usable_cores().count;
  EXPECT_TRUE(refuses({.devices = int64_t{999}}, {"TrainerOptions.devices: 999 ranks on this machine, and it has " +
                                                      std::to_string(cores) + " core",
                                                  "oversubscribe: true"}));
  EXPECT_TRUE(refuses({.devices = cores + 1}, {"TrainerOptions.devices", "oversubscribe: true"}));
  EXPECT_TRUE(problems_of({.devices = cores}).empty());
  EXPECT_TRUE(problems_of({.devices = int64_t{999}, .oversubscribe = true}).empty());
}

// LibTorch would end the process, or work with thousands of threads.
TEST(RunPlan, RefusesThousandsOfThreads) {
  for (const int64_t threads : {int64_t{1025}, int64_t{5000}, int64_t{100000}, int64_t{1} << 40}) {
    EXPECT_TRUE(refuses({.num_threads = threads},
                        {"TrainerOptions.num_threads", "must be <= 1024, got", "or auto", std::to_string(threads)}));
    EXPECT_TRUE(refuses({.accelerator = "cpu", .devices = threads, .strategy = "dp"},
                        {"TrainerOptions.devices", std::to_string(threads), "Use at most 1024"}));
  }
  EXPECT_TRUE(problems_of({.num_threads = int64_t{1024}}).empty());
}

TEST(RunPlan, AShareOfAnEpochCannotBeCountedAcrossEpochs) {
  EXPECT_TRUE(refuses({.val_check_interval = 0.5, .check_val_every_n_epoch = std::nullopt},
                      {"TrainerOptions.val_check_interval", "(0.5)", "across epochs", "check_val_every_n_epoch"}));
  EXPECT_TRUE(refuses({.check_val_every_n_epoch = std::nullopt}, {"TrainerOptions.val_check_interval", "(1.0)"}));
  EXPECT_TRUE(problems_of({.val_check_interval = int64_t{5}, .check_val_every_n_epoch = std::nullopt}).empty());
}

TEST(RunPlan, TellsAllProblemsAtOnce) {
  const auto problems = problems_of({.max_epochs = -2,
                                     .accelerator = "gpu",
                                     .devices = int64_t{2},
                                     .num_nodes = 2,
                                     .strategy = "single_device",
                                     .precision = "8"});
  ASSERT_EQ(problems.size(), 5U) << ::testing::PrintToString(problems);
  const std::string all = ConfigError(problems).what();
  for (const char* option : {"max_epochs", "accelerator", "devices", "num_nodes", "precision"}) {
    EXPECT_TRUE(has(all, std::string("TrainerOptions.") + option)) << all;
  }
}

TEST(RunPlan, BarebonesTurnsOffWhatCostsTime) {
  const RunPlan plan = resolve_plan({.barebones = true});
  EXPECT_FALSE(plan.checkpointing || plan.progress_bar || plan.model_summary || plan.logging);
  EXPECT_EQ(plan.num_sanity_val_steps, 0);
  EXPECT_EQ(plan.log_every_n_steps, 0);
}

TEST(RunPlan, BarebonesListsEveryClash) {
  const auto problems = problems_of({.fast_dev_run = true,
                                     .num_sanity_val_steps = 2,
                                     .log_every_n_steps = 10,
                                     .enable_checkpointing = true,
                                     .enable_progress_bar = true,
                                     .enable_model_summary = true,
                                     .detect_anomaly = true,
                                     .barebones = true});
  ASSERT_EQ(problems.size(), 7U) << ::testing::PrintToString(problems);
  const std::string all = ConfigError(problems).what();
  for (const char* option : {"fast_dev_run", "num_sanity_val_steps", "log_every_n_steps", "enable_checkpointing",
                             "enable_progress_bar", "enable_model_summary", "detect_anomaly"}) {
    EXPECT_TRUE(has(all, std::string("TrainerOptions.") + option + ": ")) << all;
  }
  EXPECT_TRUE(has(all, "together with barebones"));
  EXPECT_TRUE(problems_of({.enable_checkpointing = false, .enable_progress_bar = false, .barebones = true}).empty());
}

TEST(RunPlan, FastDevRunIsOneShortPass) {
  const RunPlan one = resolve_plan({.max_epochs = 7, .fast_dev_run = true});
  EXPECT_EQ(one.limit_train_batches, batches(1));
  EXPECT_EQ(one.limit_predict_batches, batches(1));
  EXPECT_EQ(one.max_epochs, 1);
  EXPECT_EQ(one.max_steps, 1);
  EXPECT_EQ(one.num_sanity_val_steps, 0);
  const RunPlan three = resolve_plan({.fast_dev_run = int64_t{3}, .val_check_interval = int64_t{2}});
  EXPECT_EQ(three.limit_val_batches, batches(3));
  EXPECT_EQ(three.limit_test_batches, batches(3));
  EXPECT_EQ(three.max_steps, 3);
  EXPECT_EQ(three.val_check_interval, CheckInterval(1.0));
  EXPECT_FALSE(resolve_plan({.fast_dev_run = int64_t{0}}).fast_dev_run);
}

TEST(RunPlan, OverfitLimitsTrainingAndValidation) {
  const RunPlan plan = resolve_plan({.limit_val_batches = batches(9), .overfit_batches = batches(2)});
  EXPECT_TRUE(plan.overfit);
  EXPECT_EQ(plan.limit_train_batches, batches(2));
  EXPECT_EQ(plan.limit_val_batches, batches(2));
  EXPECT_EQ(plan.limit_test_batches, BatchLimit(1.0));
  EXPECT_EQ(resolve_plan({.overfit_batches = 0.25}).limit_train_batches, BatchLimit(0.25));
  EXPECT_FALSE(resolve_plan({.overfit_batches = batches(0)}).overfit);
}

// ---- limited_batches ------------------------------------------------------------------------------------------------

TEST(LimitedBatches, TakesTheSmallerOfCountAndLength) {
  EXPECT_EQ(limited_batches(batches(3), 10, "x"), 3);
  EXPECT_EQ(limited_batches(batches(30), 10, "x"), 10);
  EXPECT_EQ(limited_batches(batches(0), 10, "x"), 0);
  EXPECT_EQ(limited_batches(batches(1), 10, "x"), 1);  // one batch
  EXPECT_EQ(limited_batches(1.0, 10, "x"), 10);        // all of them
}

TEST(LimitedBatches, RoundsSharesDown) {
  EXPECT_EQ(limited_batches(0.25, 10, "x"), 2);
  EXPECT_EQ(limited_batches(0.99, 10, "x"), 9);
  EXPECT_EQ(limited_batches(0.1, 10, "x"), 1);
  EXPECT_EQ(limited_batches(0.0, 10, "x"), 0);
  EXPECT_EQ(limited_batches(0.5, 0, "x"), 0);  // an empty loader is a separate problem
}

TEST(LimitedBatches, NamesTheLeastShareThatLeavesABatch) {
  const std::string error = error_of([] { (void)limited_batches(0.1, 4, "limit_val_batches"); });
  EXPECT_TRUE(has(error, "TrainerOptions.limit_val_batches: 0.1 of 4 batches leaves none")) << error;
  EXPECT_TRUE(has(error, "at least 0.25")) << error;
  EXPECT_EQ(limited_batches(0.25, 4, "limit_val_batches"), 1);
}

TEST(LimitedBatches, OfAnUnknownLengthKnowsCountsAllAndNone) {
  EXPECT_EQ(limited_batches(batches(3), std::nullopt, "x"), 3);
  EXPECT_EQ(limited_batches(1.0, std::nullopt, "x"), kUnlimited);
  EXPECT_EQ(limited_batches(0.0, std::nullopt, "x"), 0);
  const std::string error = error_of([] { (void)limited_batches(0.5, std::nullopt, "limit_train_batches"); });
  EXPECT_TRUE(has(error, "TrainerOptions.limit_train_batches: a share (0.5) of a loader of unknown length")) << error;
  EXPECT_TRUE(has(error, "Use a number of batches, or 1.0")) << error;
}

// ---- validation_interval --------------------------------------------------------------------------------------------

TEST(ValidationInterval, CountsBatches) {
  EXPECT_EQ(validation_interval(resolve_plan({}), 10), kUnlimited) << "at the end of the epoch, wherever it is";
  EXPECT_EQ(validation_interval(resolve_plan({.val_check_interval = 0.25}), 10), 2);
  EXPECT_EQ(validation_interval(resolve_plan({.val_check_interval = 0.01}), 10), 1);
  EXPECT_EQ(validation_interval(resolve_plan({.val_check_interval = int64_t{3}}), 10), 3);
  EXPECT_EQ(validation_interval(resolve_plan({}), kUnlimited), kUnlimited);
  EXPECT_EQ(validation_interval(resolve_plan({.val_check_interval = int64_t{3}}), kUnlimited), 3);
  const RunPlan across = resolve_plan({.val_check_interval = int64_t{70}, .check_val_every_n_epoch = std::nullopt});
  EXPECT_EQ(validation_interval(across, 10), 70);
}

TEST(ValidationInterval, RefusesWhatDoesNotFitTheLoader) {
  std::string error =
      error_of([] { (void)validation_interval(resolve_plan({.val_check_interval = int64_t{11}}), 10); });
  EXPECT_TRUE(has(error, "TrainerOptions.val_check_interval: 11 is more than the 10 training batches")) << error;
  EXPECT_TRUE(has(error, "check_val_every_n_epoch: null")) << error;
  error = error_of([] { (void)validation_interval(resolve_plan({.val_check_interval = 0.5}), kUnlimited); });
  EXPECT_TRUE(has(error, "TrainerOptions.val_check_interval: a share (0.5) of a loader of unknown length")) << error;
}

// ---- TrainerOptions -------------------------------------------------------------------------------------------------

TEST(TrainerOptions, ListsEveryField) {
  EXPECT_EQ(testing::field_count<TrainerOptions>(), field_names<TrainerOptions>().size());
  EXPECT_TRUE(testing::in_declared_order<TrainerOptions>());
  EXPECT_EQ(testing::field_count<LRSchedulerOptions>(), field_names<LRSchedulerOptions>().size());
}

TEST(TrainerOptions, ReadBackAsTheyWereWritten) {
  TrainerOptions options;
  options.max_epochs = 5;
  options.max_time = Seconds(90);
  options.devices = std::vector<int64_t>{0};
  options.gradient_clip_val = 0.5;
  options.gradient_clip_algorithm = ClipAlgorithm::value;
  options.limit_train_batches = BatchLimit(1.0);
  options.limit_val_batches = batches(1);
  options.fast_dev_run = int64_t{4};
  options.check_val_every_n_epoch = std::nullopt;
  options.logger = false;
  options.enable_checkpointing = false;
  options.deterministic = "warn";
  const ConfigNode written = write_options(options);
  TrainerOptions read;
  Problems problems;
  ASSERT_TRUE(read_options(written, read, "trainer", problems)) << ::testing::PrintToString(problems.lines());
  EXPECT_EQ(read.max_epochs, 5);
  EXPECT_EQ(read.max_time, Seconds(90));
  EXPECT_EQ(read.devices, options.devices);
  EXPECT_EQ(read.gradient_clip_val, 0.5);
  EXPECT_EQ(read.gradient_clip_algorithm, ClipAlgorithm::value);
  EXPECT_EQ(read.limit_train_batches, BatchLimit(1.0));  // all, not one batch
  EXPECT_EQ(read.limit_val_batches, batches(1));         // one batch, not all
  EXPECT_EQ(read.fast_dev_run, options.fast_dev_run);
  EXPECT_EQ(read.check_val_every_n_epoch, std::nullopt);
  EXPECT_FALSE(read.logger.enabled);
  EXPECT_EQ(read.enable_checkpointing, false);
  EXPECT_EQ(read.enable_progress_bar, std::nullopt);
  EXPECT_EQ(read.deterministic, options.deterministic);
  for (const auto& entry : written.entries) {
    EXPECT_EQ(write_options(read).find(entry.key)->shown(), entry.value.shown()) << entry.key;
  }
}

}  // namespace
}  // namespace levin::run_plan_test
