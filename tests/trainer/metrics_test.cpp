// How MetricStore reduces logged values, checked against plain arithmetic.
#include "levin/trainer/metrics.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>

#include "levin/core/options/error.h"
#include "support/error_text.h"

namespace levin::metrics_test {
namespace {

using test::has;

using Place = MetricStore::Place;

Place training(int64_t batch_size = 1) {
  return {Hook::training_step, batch_size, 0, 1};
}
Place validation(int64_t batch_size, int64_t loader = 0, int64_t loaders = 1) {
  return {Hook::validation_step, batch_size, loader, loaders};
}

std::string error_of(const Place& place, std::string_view name, const LogOptions& options = {},
                     const at::Tensor& value = at::scalar_tensor(1.0)) {
  MetricStore store;
  try {
    store.log(place, name, value, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// ---- rows of steps -----------------------------------------------------------------------------------------------

TEST(MetricStore, ARowOfAStepIsWhatWasLoggedByName) {
  MetricStore store;
  store.log(training(), "loss", 3.0, {.on_epoch = true});
  store.log(training(), "acc", 0.5, {});
  store.log(training(), "epoch_only", 7.0, {.on_step = false, .on_epoch = true});
  store.log(training(), "not_written", 8.0, {.logger = false});
  const MetricRow row = store.step_row();
  EXPECT_EQ(*row.names, (std::vector<std::string>{"acc", "loss_step"}));
  EXPECT_EQ(row.values, (std::vector<double>{0.5, 3.0}));
  EXPECT_FALSE(row.epoch);
}

TEST(MetricStore, RowsShareTheirNamesUntilOtherMetricsAreLogged) {
  MetricStore store;
  EXPECT_TRUE(store.step_row().values.empty());
  store.log(training(), "a", 1.0, {});
  const MetricRow first = store.step_row();
  store.log(training(), "a", 2.0, {});
  const MetricRow second = store.step_row();
  EXPECT_EQ(first.names, second.names);
  EXPECT_EQ(second.values, std::vector<double>{2.0});
  store.log(training(), "b", 3.0, {});
  EXPECT_EQ(*store.step_row().names, (std::vector<std::string>{"a", "b"}));
  store.reset();
  store.log(training(), "b", 4.0, {});
  EXPECT_EQ(*store.step_row().names, std::vector<std::string>{"b"});
  EXPECT_EQ(*first.names, std::vector<std::string>{"a"}) << "a row keeps its names";
}

TEST(MetricStore, OfTwoHooksThatLogOneNameTheLastCounts) {
  MetricStore store;
  store.log(training(), "x", 1.0, {});
  store.log({Hook::on_train_batch_end, 1, 0, 1}, "x", 2.0, {.on_step = true, .on_epoch = false});
  const MetricRow row = store.step_row();
  EXPECT_EQ(*row.names, std::vector<std::string>{"x"});
  EXPECT_EQ(row.values, std::vector<double>{store.logged(true).at("x")});
  EXPECT_EQ(row.values, std::vector<double>{2.0});
}

// ---- reductions -----------------------------------------------------------------------------------------------------

TEST(MetricStore, MeanWeighsBatchesByTheirSize) {
  MetricStore store;
  store.log(validation(8), "loss", 1.0, {});
  store.log(validation(8), "loss", 2.0, {});
  store.log(validation(3), "loss", 10.0, {});
  EXPECT_DOUBLE_EQ(store.logged(false).at("loss"), (8 * 1.0 + 8 * 2.0 + 3 * 10.0) / 19);
}

TEST(MetricStore, BatchSizeOfTheCallWins) {
  MetricStore store;
  store.log(validation(8), "loss", 1.0, {.batch_size = 1});
  store.log(validation(8), "loss", 4.0, {.batch_size = 2});
  EXPECT_DOUBLE_EQ(store.logged(false).at("loss"), 3.0);
}

TEST(MetricStore, SumMinAndMaxIgnoreTheSize) {
  MetricStore store;
  for (const double value : {3.0, -1.0, 2.0}) {
    store.log(validation(5), "sum", value, {.reduce_fx = ReduceFx::sum});
    store.log(validation(5), "min", value, {.reduce_fx = ReduceFx::min});
    store.log(validation(5), "max", value, {.reduce_fx = ReduceFx::max});
  }
  EXPECT_EQ(store.logged(false), (Metrics{{"max", 3.0}, {"min", -1.0}, {"sum", 4.0}}));
}

TEST(MetricStore, NanIsNotLost) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  MetricStore store;
  for (const double value : {1.0, nan, 2.0}) {
    store.log(validation(1), "mean", value, {});
    store.log(validation(1), "min", value, {.reduce_fx = ReduceFx::min});
    store.log(validation(1), "max", value, {.reduce_fx = ReduceFx::max});
    store.log(validation(1), "sum", value, {.reduce_fx = ReduceFx::sum});
  }
  for (const auto& [name, value] : store.logged(false)) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(MetricStore, ResetStartsAfresh) {
  MetricStore store;
  store.log(validation(4), "loss", 7.0, {});
  store.log(validation(4), "low", 1.0, {.reduce_fx = ReduceFx::min});
  store.reset();
  EXPECT_TRUE(store.logged(false).empty());
  store.log(validation(4), "low", 5.0, {.reduce_fx = ReduceFx::min});
  EXPECT_EQ(store.logged(false), (Metrics{{"low", 5.0}}));
}

TEST(MetricStore, FindsSlotsInAnyOrder) {
  MetricStore store;
  for (const auto* names : {"ab", "ba", "ab"}) {
    store.log(validation(1), std::string(1, names[0]), names[0] == 'a' ? 1.0 : 2.0, {});
    store.log(validation(1), std::string(1, names[1]), names[1] == 'a' ? 1.0 : 2.0, {});
  }
  EXPECT_EQ(store.logged(false), (Metrics{{"a", 1.0}, {"b", 2.0}}));
}

// ---- names ----------------------------------------------------------------------------------------------------------

// Returns the processor's time for three batches that log as many names, each batch in a different order.
double seconds_of_names(int64_t names) {
  timespec begin = {}, end = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  MetricStore store;
  for (int64_t batch = 0; batch < 3; ++batch) {
    for (int64_t k = 0; k < names; ++k)
      store.log(training(), "metric/" + std::to_string(k * (2 * batch + 1) % names), 1.0, {});
  }
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
}

TEST(MetricStore, TenTimesAsManyNamesTakeTenTimesTheTime) {
  const double thousands = seconds_of_names(2048), ten_times = seconds_of_names(20480);
  EXPECT_LT(ten_times, 30 * thousands) << thousands << " s";  // squared, it would be 100 times
}

TEST(MetricStore, TrainingStepsLogPerStepAndValidationPerEpoch) {
  MetricStore store;
  store.log(training(), "t", 1.0, {});
  store.log(validation(1), "v", 2.0, {});
  EXPECT_EQ(store.logged(true), (Metrics{{"t", 1.0}}));
  EXPECT_EQ(store.logged(false), (Metrics{{"v", 2.0}}));
}

TEST(MetricStore, BothWaysHaveTwoNamesAndOnePlainOneForCallbacks) {
  MetricStore store;
  const LogOptions both{.prog_bar = true, .on_step = true, .on_epoch = true};
  store.log(training(2), "loss", 1.0, both);
  store.log(training(2), "loss", 3.0, both);
  EXPECT_EQ(store.logged(true), (Metrics{{"loss_step", 3.0}}));
  EXPECT_EQ(store.logged(false), (Metrics{{"loss_epoch", 2.0}}));
  EXPECT_EQ(store.monitored(true, true), (Metrics{{"loss", 3.0}, {"loss_step", 3.0}}));
  EXPECT_EQ(store.monitored(false, true), (Metrics{{"loss", 2.0}, {"loss_epoch", 2.0}}));
  EXPECT_EQ(store.shown(true), (Metrics{{"loss_step", 3.0}}));
  EXPECT_TRUE(store.monitored(true, false).empty());
}

TEST(MetricStore, TheSameNameTwiceInABatchKeepsTheLastStepValueAndBothForTheEpoch) {
  MetricStore store;
  const LogOptions both{.on_step = true, .on_epoch = true};
  store.log(training(1), "loss", 1.0, both);
  store.log(training(1), "loss", 2.0, both);
  EXPECT_EQ(store.logged(true).at("loss_step"), 2.0);
  EXPECT_DOUBLE_EQ(store.logged(false).at("loss_epoch"), 1.5);
}

TEST(MetricStore, SeveralLoadersGetASuffixEach) {
  MetricStore store;
  store.log(validation(1, 0, 2), "acc", 0.25, {});
  store.log(validation(1, 1, 2), "acc", 0.75, {});
  EXPECT_EQ(store.logged(false), (Metrics{{"acc/dataloader_idx_0", 0.25}, {"acc/dataloader_idx_1", 0.75}}));
  EXPECT_EQ(store.logged(false, 1), (Metrics{{"acc/dataloader_idx_1", 0.75}}));
  EXPECT_EQ(store.monitored(false, false).count("acc"), 0U);
}

TEST(MetricStore, SuffixComesAfterStepAndEpoch) {
  MetricStore store;
  store.log(validation(1, 1, 2), "acc", 0.75, {.on_step = true, .on_epoch = true});
  EXPECT_EQ(store.logged(true), (Metrics{{"acc_step/dataloader_idx_1", 0.75}}));
  EXPECT_EQ(store.logged(false), (Metrics{{"acc_epoch/dataloader_idx_1", 0.75}}));
}

TEST(MetricStore, SuffixMayBeTurnedOff) {
  MetricStore store;
  store.log(validation(1, 1, 2), "acc", 0.75, {.add_dataloader_idx = false});
  EXPECT_EQ(store.logged(false), (Metrics{{"acc", 0.75}}));
}

TEST(MetricStore, OneNameInTwoHooksIsTwoMetrics) {
  MetricStore store;
  store.log({Hook::training_step, 4, 0, 1}, "x", 1.0, {.on_step = false, .on_epoch = true});
  store.log({Hook::on_train_epoch_end, 1, -1, 1}, "y", 5.0, {});
  EXPECT_EQ(store.logged(false), (Metrics{{"x", 1.0}, {"y", 5.0}}));
}

TEST(MetricStore, WhatIsNotForLoggersIsStillMonitored) {
  MetricStore store;
  store.log(validation(1), "hidden", 1.0, {.logger = false});
  EXPECT_TRUE(store.logged(false).empty());
  EXPECT_EQ(store.monitored(false, false), (Metrics{{"hidden", 1.0}}));
  EXPECT_TRUE(store.shown(false).empty());
}

// ---- tensors --------------------------------------------------------------------------------------------------------

TEST(MetricStore, ReadsEveryNumberFormat) {
  MetricStore store;
  const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"bf16", at::kBFloat16}, {"bool", at::kBool}, {"double", at::kDouble}, {"float", at::kFloat},
      {"half", at::kHalf},     {"int", at::kInt},   {"long", at::kLong},     {"uint8", at::kByte}};
  for (const auto& [name, type] : types) store.log(validation(1), name, at::ones({}, type), {});
  store.log(validation(1), "one_element", at::full({1, 1}, 0.5), {});
  const Metrics metrics = store.logged(false);
  for (const auto& [name, type] : types) EXPECT_EQ(metrics.at(name), 1.0) << name;
  EXPECT_EQ(metrics.at("one_element"), 0.5);
}

TEST(MetricStore, ReadsAnElementInsideALargerTensor) {
  MetricStore store;
  const at::Tensor all = at::ones({3}).cumsum(0);
  store.log(validation(1), "second", all[1], {});
  EXPECT_EQ(store.logged(false).at("second"), 2.0);
}

TEST(MetricStore, ALaterChangeInPlaceDoesNotReachTheMetric) {
  MetricStore store;
  at::Tensor value = at::scalar_tensor(2.0, at::kFloat);
  store.log(training(), "loss", value, {.on_step = true, .on_epoch = true});
  value.fill_(100);
  EXPECT_EQ(store.logged(true).at("loss_step"), 2.0);
  EXPECT_EQ(store.logged(false).at("loss_epoch"), 2.0);
}

TEST(MetricStore, SumsInDoublePrecision) {
  MetricStore store;
  const at::Tensor tenth = at::scalar_tensor(0.1, at::kFloat);
  for (int i = 0; i < 100000; ++i) store.log(validation(1), "x", tenth, {});
  EXPECT_NEAR(store.logged(false).at("x"), static_cast<double>(0.1F), 1e-12);
}

// ---- errors ---------------------------------------------------------------------------------------------------------

TEST(MetricStore, NamesTheHookThatForbidsLogging) {
  for (const Hook hook : {Hook::setup, Hook::on_fit_start, Hook::on_fit_end, Hook::on_train_end, Hook::predict_step,
                          Hook::on_validation_end, Hook::on_test_end, Hook::teardown, Hook::configure_optimizers}) {
    const std::string error = error_of({hook, 1, 0, 1}, "loss");
    EXPECT_TRUE(has(error, "log(\"loss\") in " + std::string(hook_name(hook)) + ": nothing can be logged there"))
        << hook_name(hook) << ": " << error;
  }
  EXPECT_TRUE(has(error_of({}, "loss"), "code outside a run"));
}

TEST(MetricStore, EpochHooksHaveNoStep) {
  for (const Hook hook : {Hook::on_train_epoch_end, Hook::on_validation_epoch_end, Hook::on_train_start}) {
    const std::string error = error_of({hook, 1, 0, 1}, "loss", {.on_step = true});
    EXPECT_TRUE(has(error, hook_name(hook))) << error;
    EXPECT_TRUE(has(error, "on_step is not possible")) << error;
  }
}

TEST(MetricStore, AMetricIsOneNumber) {
  EXPECT_TRUE(has(error_of(training(), "loss", {}, at::ones({3})), "log(\"loss\") in training_step: a metric is one"));
  EXPECT_TRUE(has(error_of(training(), "loss", {}, at::ones({3})), "got 3 elements"));
  EXPECT_TRUE(has(error_of(training(), "loss", {}, at::ones({0})), "got 0 elements"));
  EXPECT_TRUE(has(error_of(training(), "loss", {}, at::Tensor()), "got no tensor"));
}

TEST(MetricStore, RefusesBadNames) {
  EXPECT_TRUE(has(error_of(training(), ""), "a metric needs a name"));
  EXPECT_TRUE(has(error_of(training(), "a/dataloader_idx_1"), "made by Levin itself"));
  for (const char* counter : {"step", "epoch"}) {  // columns of every logger
    EXPECT_TRUE(has(error_of(training(), counter), std::string("log(\"") + counter + "\") in training_step: "));
    EXPECT_TRUE(has(error_of(training(), counter), "is the name of the counter in the rows of the loggers"));
  }
  EXPECT_EQ(error_of(training(), "steps"), "");
}

TEST(MetricStore, RefusesOtherOptionsUnderTheSameName) {
  const std::vector<LogOptions> others = {
      {.prog_bar = true}, {.logger = false}, {.on_step = false, .on_epoch = true}, {.reduce_fx = ReduceFx::sum}};
  for (const auto& other : others) {
    MetricStore store;
    store.log(training(), "loss", 1.0, {});
    try {
      store.log(training(), "loss", 1.0, other);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_TRUE(has(error.what(), "log(\"loss\") in training_step: it was logged before with different options"));
    }
  }
}

}  // namespace
}  // namespace levin::metrics_test
