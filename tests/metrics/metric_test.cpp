// The base of metrics: states, what merges them, checkpoints, and the value of a single batch.
#include "levin/metrics/metric.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "levin/metrics/update_undo.h"
#include "support/error_text.h"

namespace levin::metric_test {
namespace {

using namespace levin::metrics;
using levin::test::error_of;
using levin::test::holds;

constexpr double infinity = std::numeric_limits<double>::infinity();

at::Tensor numbers(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

/// A state of each kind: the sum, the lowest and highest number, and all of them. The value is the sum, unless the
/// batch is empty.
class Extremes final : public TensorMetric {
 public:
  explicit Extremes(double floor = infinity) {
    sum_ = add_state("sum", StateReduce::sum, at::zeros({}, at::kDouble));
    low_ = add_state("low", StateReduce::min, at::full({}, floor, at::kDouble));
    high_ = add_state("high", StateReduce::max, at::full({}, -infinity, at::kDouble));
    all_ = add_state("all", StateReduce::cat);
  }
  void update(const at::Tensor& preds, const at::Tensor&) override {
    begin_update(preds.device());
    state(sum_) = state(sum_).add(preds.sum());
    if (preds.numel() == 0) throw Error("an empty batch");
    state(low_) = at::minimum(state(low_), preds.amin());
    state(high_) = at::maximum(state(high_), preds.amax());
    append(all_, preds);
  }
  at::Tensor compute() const override {
    if (update_count() == 0) throw Error("nothing to compute");
    return state(sum_);
  }
  std::string name() const override { return "Extremes"; }
  at::Tensor all() const { return rows(all_); }

 private:
  size_t sum_ = 0, low_ = 0, high_ = 0, all_ = 0;
};

void feed(Extremes& metric, const std::vector<double>& values) {
  metric.update(numbers(values), {});
}

// Sum, lowest, highest, and all numbers in a row.
std::vector<double> contents(const Metric& metric) {
  std::vector<double> list;
  for (const at::Tensor& state : metric.states()) {
    for (int64_t i = 0; i < state.numel(); ++i) list.push_back(state.reshape(-1)[i].item<double>());
  }
  return list;
}

TEST(MetricStates, HoldWhatUpdatesPutThere) {
  Extremes metric;
  EXPECT_EQ(contents(metric), (std::vector<double>{0, infinity, -infinity}));
  feed(metric, {3, 1});
  feed(metric, {5});
  EXPECT_EQ(contents(metric), (std::vector<double>{9, 1, 5, 3, 1, 5}));
  EXPECT_EQ(metric.update_count(), 2);
  EXPECT_EQ(metric.reductions(), (std::vector{StateReduce::sum, StateReduce::min, StateReduce::max, StateReduce::cat}));
  EXPECT_EQ(metric.compute().item<double>(), 9);
}

TEST(MetricStates, OfTwoHalvesMergeToTheStatesOfTheWhole) {
  Extremes whole, one, other;
  for (Extremes* metric : {&whole, &one}) feed(*metric, {3, 1});
  for (Extremes* metric : {&whole, &other}) {
    feed(*metric, {7});
    feed(*metric, {-2, 4});
  }
  one.merge(other.states(), other.update_count());
  EXPECT_EQ(contents(one), contents(whole));
  EXPECT_EQ(one.update_count(), 3);
}

TEST(MetricStates, OfARankWithoutDataChangeNothing) {
  Extremes full, empty;
  feed(full, {3, 1});
  const auto before = contents(full);
  full.merge(empty.states(), empty.update_count());
  EXPECT_EQ(contents(full), before);
  EXPECT_EQ(full.update_count(), 1);
  empty.merge(full.states(), full.update_count());
  EXPECT_EQ(contents(empty), before);
  EXPECT_EQ(empty.compute().item<double>(), 4);
}

TEST(MetricStates, AreCopiesThatLaterUpdatesLeaveAlone) {
  Extremes metric;
  feed(metric, {3});
  const MetricStates kept = metric.states();
  feed(metric, {4});
  EXPECT_EQ(kept[0].item<double>(), 3);
  EXPECT_EQ(kept[3].numel(), 1);
  Extremes other;
  other.set_states(kept, 1);
  feed(other, {10});
  EXPECT_EQ(kept[0].item<double>(), 3);
  EXPECT_EQ(contents(other), (std::vector<double>{13, 3, 10, 3, 10}));
}

TEST(MetricStates, KeepACopyOfTheRowsAppended) {
  Extremes metric;
  const at::Tensor batch = numbers({1, 2});
  metric.update(batch, {});
  batch.fill_(9);
  EXPECT_TRUE(metric.all().equal(numbers({1, 2})));
}

TEST(MetricStates, BeginAgainAfterReset) {
  Extremes metric(100);
  feed(metric, {3, 1});
  metric.reset();
  EXPECT_EQ(metric.update_count(), 0);
  EXPECT_EQ(contents(metric), (std::vector<double>{0, 100, -infinity}));
  EXPECT_EQ(metric.all().sizes(), at::IntArrayRef({0}));
  feed(metric, {3});
  EXPECT_EQ(contents(metric), (std::vector<double>{3, 3, 3, 3}));
}

TEST(MetricStates, FollowTheBatchesDevice) {
  Extremes metric;
  feed(metric, {3});
  metric.update(numbers({4}).to(at::kMeta), {});
  for (const at::Tensor& state : metric.states()) EXPECT_TRUE(state.is_meta());
  metric.reset();
  for (size_t k = 0; k < 3; ++k) EXPECT_TRUE(metric.states()[k].is_meta());
}

TEST(MetricStates, ThatWereLoadedFollowTheDeviceOfTheNextBatch) {
  Extremes before, metric;
  feed(before, {3});
  metric.load_state_dict(before.state_dict());
  metric(numbers({4}).to(at::kMeta), {});
  for (const at::Tensor& state : metric.states()) EXPECT_TRUE(state.is_meta());
  EXPECT_EQ(metric.states()[3].numel(), 2);
}

TEST(MetricStates, OfADifferentDeviceMergeOnTheMetricsOwn) {
  Extremes metric, other;
  metric.update(numbers({4}).to(at::kMeta), {});
  feed(other, {3});
  metric.merge(other.states(), other.update_count());
  for (const at::Tensor& state : metric.states()) EXPECT_TRUE(state.is_meta());
  EXPECT_EQ(metric.states()[3].numel(), 2);
}

TEST(MetricState, OfACheckpointGivesTheSameMetric) {
  Extremes metric, other;
  feed(metric, {3, 1});
  feed(metric, {5});
  const State saved = metric.state_dict();
  EXPECT_EQ(saved.tensors.size(), 4U);
  EXPECT_EQ(saved.tensor("high").item<double>(), 5);
  other.load_state_dict(saved);
  EXPECT_EQ(contents(other), contents(metric));
  EXPECT_EQ(other.update_count(), 2);
  feed(metric, {8});
  feed(other, {8});
  EXPECT_EQ(contents(other), contents(metric));
  other.reset();
  EXPECT_EQ(other.states()[0].item<double>(), 0);
}

TEST(MetricState, OfAMetricWithoutDataLoadsToo) {
  Extremes metric, other;
  feed(other, {3});
  other.load_state_dict(metric.state_dict());
  EXPECT_EQ(contents(other), contents(metric));
  EXPECT_EQ(other.update_count(), 0);
}

TEST(MetricState, ThatDoesNotFitIsNamedAndChangesNothing) {
  Extremes metric;
  feed(metric, {3});
  State saved = metric.state_dict();
  saved.tensors["low"] = at::zeros({2}, at::kDouble);
  EXPECT_TRUE(
      holds(error_of<CheckpointError>([&] { metric.load_state_dict(saved); }),
            {"Extremes: the saved state \"low\" has the shape [2], this metric's is []. Its options have changed."}));
  saved.tensors["low"] = at::zeros({}, at::kLong);
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { metric.load_state_dict(saved); }),
                    {"Extremes: the saved state \"low\" has the type Long, this metric's is Double."}));
  saved.tensors.erase("low");
  EXPECT_TRUE(holds(error_of<CheckpointError>([&] { metric.load_state_dict(saved); }), {"low"}));
  EXPECT_EQ(contents(metric), (std::vector<double>{3, 3, 3, 3}));
}

TEST(MetricBatchValue, ComesFromTheLatestBatchAlone) {
  Extremes metric;
  metric(numbers({3, 1}), {});
  EXPECT_EQ(metric.batch_value().item<double>(), 4);
  metric(numbers({5}), {});
  EXPECT_EQ(metric.batch_value().item<double>(), 5);
  EXPECT_EQ(metric.batch_value().item<double>(), 5);
  EXPECT_EQ(metric.update_count(), 2);
  EXPECT_EQ(contents(metric), (std::vector<double>{9, 1, 5, 3, 1, 5}));
}

TEST(MetricBatchValue, DoesNotExistAfterUpdate) {
  Extremes metric;
  const char* message =
      "Extremes: the batch has no value of its own, because update() was called. Call the metric itself, "
      "metric(preds, target), or log it with on_step = false.";
  feed(metric, {3});
  EXPECT_EQ(error_of<Error>([&] { static_cast<void>(metric.batch_value()); }), message);
  metric(numbers({4}), {});
  feed(metric, {5});  // the latest batch was not given by operator()
  EXPECT_EQ(error_of<Error>([&] { static_cast<void>(metric.batch_value()); }), message);
  metric(numbers({4}), {});
  metric.reset();
  EXPECT_EQ(error_of<Error>([&] { static_cast<void>(metric.batch_value()); }), message);
}

TEST(MetricBatchValue, LeavesTheStatesAloneWhenItFails) {
  class Fails final : public TensorMetric {
   public:
    Fails() : sum_(add_state("sum", StateReduce::sum, at::zeros({}, at::kDouble))) {}
    void update(const at::Tensor& preds, const at::Tensor&) override {
      begin_update(preds.device());
      state(sum_) = state(sum_).add(preds.sum());
    }
    at::Tensor compute() const override {
      if (state(sum_).item<double>() < 0) throw Error("a sum below 0");
      return state(sum_);
    }
    std::string name() const override { return "Fails"; }

   private:
    size_t sum_;
  } metric;
  metric(numbers({5}), {});
  metric(numbers({-1}), {});
  EXPECT_EQ(error_of<Error>([&] { static_cast<void>(metric.batch_value()); }), "a sum below 0");
  EXPECT_EQ(metric.compute().item<double>(), 4);
  EXPECT_EQ(metric.update_count(), 2);
}

TEST(MetricBatchValue, ABatchThatFailsIsNotCounted) {
  Extremes metric;
  feed(metric, {3});
  EXPECT_EQ(error_of<Error>([&] { metric(numbers({}), {}); }), "an empty batch");
  EXPECT_EQ(contents(metric), (std::vector<double>{3, 3, 3, 3}));
  EXPECT_EQ(metric.update_count(), 1);
}

TEST(MetricSelf, IsEmptyOnceTheMetricIsDestroyed) {
  std::weak_ptr<Metric> self;
  {
    Extremes metric;
    self = metric.self();
    EXPECT_EQ(self.lock().get(), &metric);
  }
  EXPECT_TRUE(self.expired());
}

/// Counts pairs that are equal.
class Matches final : public TextMetric {
 public:
  Matches() : count_(add_state("count", StateReduce::sum, at::zeros({}, at::kLong))) {}
  using TextMetric::update;
  void update(const Texts& preds, const std::vector<Texts>& references) override {
    begin_update(at::kCPU);
    for (size_t k = 0; k < preds.size(); ++k) state(count_) = state(count_).add(references[k][0] == preds[k] ? 1 : 0);
  }
  at::Tensor compute() const override { return state(count_); }
  std::string name() const override { return "Matches"; }

 private:
  size_t count_;
};

TEST(TextMetrics, TakeOneReferenceForEachPrediction) {
  Matches metric;
  metric({"a", "b"}, TextMetric::Texts{"a", "c"});
  EXPECT_EQ(metric.batch_value().item<int64_t>(), 1);
  EXPECT_EQ(error_of<Error>([&] {
              metric.update({"a", "b"}, TextMetric::Texts{"a"});
            }),
            "Matches: 2 predictions for 1 reference. Give one reference for each.");
}

// ---- undone updates
// --------------------------------------------------------------------------------------------------

TEST(UpdateUndo, PutsBackWhatMetricsHadAccumulated) {
  Extremes metric, untouched;
  metric(numbers({3, 1}), {});
  feed(untouched, {8});
  UpdateUndo undo;
  for (int k = 0; k < 2; ++k) {
    metric(numbers({7}), {});
    EXPECT_EQ(contents(metric), (std::vector<double>{11, 1, 7, 3, 1, 7}));
    undo.restore();
    EXPECT_EQ(contents(metric), (std::vector<double>{4, 1, 3, 3, 1}));
    EXPECT_EQ(metric.batch_value().item<double>(), 4);
    EXPECT_EQ(metric.update_count(), 1);
    metric.reset();
    undo.restore();
    EXPECT_EQ(contents(metric), (std::vector<double>{4, 1, 3, 3, 1}));
    Extremes other;
    feed(other, {9});
    metric.take(other);
    undo.restore();
    EXPECT_EQ(contents(metric), (std::vector<double>{4, 1, 3, 3, 1}));
  }
  EXPECT_EQ(contents(untouched), (std::vector<double>{8, 8, 8, 8}));
}

TEST(UpdateUndo, MayBeNestedAndKeepsWhatIsNotPutBack) {
  Extremes metric;
  feed(metric, {1});
  {
    UpdateUndo outer;
    feed(metric, {2});
    {
      UpdateUndo inner;
      feed(metric, {3});
      inner.restore();
      EXPECT_EQ(metric.compute().item<double>(), 3);
      feed(metric, {4});
    }
    EXPECT_EQ(metric.compute().item<double>(), 7);
    outer.restore();
    EXPECT_EQ(metric.compute().item<double>(), 1);
    feed(metric, {5});
  }
  EXPECT_EQ(metric.compute().item<double>(), 6);
}

TEST(UpdateUndo, KnowsMetricsOfThreadsThatTakeItOverAndForgetsThoseThatAreGone) {
  Extremes metric, foreign;
  UpdateUndo undo;
  std::thread([&, records = update_records()] {
    exchange_update_records(records);
    feed(metric, {3});
  }).join();
  std::thread([&] { feed(foreign, {3}); }).join();
  {
    Extremes local;
    feed(local, {3});
  }
  undo.restore();
  EXPECT_EQ(metric.update_count(), 0);
  EXPECT_EQ(foreign.update_count(), 1) << "another thread's run is its own";
}

}  // namespace
}  // namespace levin::metric_test
