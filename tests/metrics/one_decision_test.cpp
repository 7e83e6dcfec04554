// Whether scores are probabilities or logits: one decision for all batches, ranks and types.
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "levin/metrics/classification.h"
#include "metrics/classification_cases.h"
#include "support/error_text.h"

namespace levin::one_decision_test {
namespace {

using namespace levin::metrics;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

at::Tensor floats(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).to(at::kFloat).reshape(shape);
}
at::Tensor labels(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

template <class M>
double value_of(M&& metric, const at::Tensor& preds, const at::Tensor& target) {
  metric.update(preds, target);
  return metric.compute().template item<double>();
}

/// Calls `check` with a new metric of each kind that must know what scores are, or ranks them.
template <class Check>
void for_each_scored(const Check& check) {
  for (const Task task : {Task::binary, Task::multilabel}) {
    const int64_t labels = task == Task::multilabel ? 3 : 0;
    check(task, [=] { return std::make_unique<Accuracy>(ClassificationOptions{.task = task, .num_labels = labels}); });
    check(task, [=] {
      return std::make_unique<F1Score>(
          ClassificationOptions{.task = task, .num_labels = labels, .threshold = 0.7, .average = Average::macro});
    });
    check(task, [=] {
      return std::make_unique<ConfusionMatrix>(ConfusionMatrixOptions{.task = task, .num_labels = labels});
    });
    check(task,
          [=] { return std::make_unique<JaccardIndex>(JaccardIndexOptions{.task = task, .num_labels = labels}); });
  }
  for (const Task task : {Task::binary, Task::multiclass, Task::multilabel}) {
    for (const std::optional<int64_t> thresholds : {std::optional<int64_t>(), std::optional<int64_t>(9)}) {
      const CurveOptions options{.task = task, .num_classes = 3, .num_labels = 3, .thresholds = thresholds};
      check(task, [=] { return std::make_unique<AUROC>(options); });
      check(task, [=] { return std::make_unique<AveragePrecision>(options); });
    }
    if (task == Task::multilabel) continue;
    check(task, [=] {
      return std::make_unique<CalibrationError>(CalibrationErrorOptions{.task = task, .num_classes = 3, .n_bins = 4});
    });
  }
}

// Logits of 40 samples, of which many lie between 0 and 1, and the last does not.
std::pair<at::Tensor, at::Tensor> narrow_logits(Task task) {
  torch::manual_seed(23);
  at::Tensor logits = task == Task::binary ? at::randn({40}).mul(0.6) : at::randn({40, 3}).mul(0.6);
  logits[39].fill_(2.5);
  const at::Tensor target = task == Task::multiclass   ? at::randint(3, {40}, at::kLong)
                            : task == Task::multilabel ? at::randint(2, {40, 3}, at::kLong)
                                                       : at::randint(2, {40}, at::kLong);
  return {logits, target};
}

// The sigmoid or softmax, by double precision.
at::Tensor probabilities_of(Task task, const at::Tensor& logits) {
  const at::Tensor exact = logits.to(at::kDouble);
  return task == Task::multiclass ? exact.softmax(1) : exact.sigmoid();
}

TEST(OneDecision, DoesNotDependOnBatchesRanksOrTypes) {
  for_each_scored([](Task task, const auto& make) {
    const auto [logits, target] = narrow_logits(task);
    const auto truth = make();
    truth->update(probabilities_of(task, logits), target);
    SCOPED_TRACE(truth->name() + " of the task " + enum_name(task));
    for (const auto type : {at::kFloat, at::kDouble}) {
      const auto whole = make(), each = make(), zero = make(), one = make();
      whole->update(logits.to(type), target);
      for (int64_t k = 0; k < 40; ++k) {
        const at::Tensor preds = logits.slice(0, k, k + 1).to(type), label = target.slice(0, k, k + 1);
        each->update(preds, label);
        (*(k < 37 ? zero : one))(preds, label);
      }
      zero->merge(one->states(), one->update_count());
      for (const auto* metric : {&whole, &each, &zero}) {
        EXPECT_TRUE((*metric)->compute().to(at::kDouble).allclose(truth->compute().to(at::kDouble), 1e-5, 1e-6));
      }
    }
  });
}

// All batches but the last of a rank lie in [0, 1].
TEST(OneDecision, IsTheSameOnAllRanks) {
  for_each_scored([](Task task, const auto& make) {
    const auto [logits, target] = narrow_logits(task);
    const auto inside = make(), outside = make(), truth = make();
    inside->update(logits.abs().clamp_max(1), target);
    outside->update(logits, target);
    inside->merge(outside->states(), outside->update_count());
    truth->update(at::cat({probabilities_of(task, logits.abs().clamp_max(1)), probabilities_of(task, logits)}),
                  at::cat({target, target}));
    EXPECT_TRUE(inside->compute().to(at::kDouble).allclose(truth->compute().to(at::kDouble), 1e-5, 1e-6))
        << truth->name() << " of the task " << enum_name(task);
  });
}

TEST(OneDecision, RanksLogitsThatABatchWouldTakeForProbabilities) {
  AUROC area({.task = Task::binary});
  AveragePrecision precision({.task = Task::binary});
  for (int k = -10; k < 10; ++k) {
    area.update(at::tensor({static_cast<float>(k) / 5.0F}), labels({k > 0}));
    precision.update(at::tensor({static_cast<float>(k) / 5.0F}), labels({k > 0}));
  }
  EXPECT_EQ(area.compute().item<double>(), 1);
  EXPECT_EQ(precision.compute().item<double>(), 1);
}

// In float32 the sigmoid of 20 is 1, and so is the softmax.
TEST(OneDecision, LargeLogitsKeepTheirOrder) {
  const at::Tensor x = floats({20, 30, 40, 50}, {4});
  EXPECT_EQ(value_of(AUROC({.task = Task::binary}), x, labels({0, 1, 0, 1})), 0.75);
  EXPECT_NEAR(value_of(AveragePrecision({.task = Task::binary}), x, labels({0, 1, 0, 1})), 0.5 + 0.5 * 2 / 3, 1e-6);
  const at::Tensor two = at::stack({x, at::zeros_like(x)}, 1);
  EXPECT_EQ(value_of(AUROC({.num_classes = 2}), two, labels({1, 0, 1, 0})), 0.75);
  EXPECT_EQ(value_of(AUROC({.num_classes = 2}), two.to(at::kDouble), labels({1, 0, 1, 0})), 0.75);
  // Class 0 against two others, of which the second is far below: its scores are in the order of x, and the scores of
  // class 1 in the reverse order.
  AUROC three({.num_classes = 3, .average = Average::none});
  three.update(at::stack({x, at::zeros_like(x), at::full_like(x, -60)}, 1), labels({1, 0, 1, 0}));
  EXPECT_EQ(three.compute()[0].item<double>(), 0.75);
  EXPECT_EQ(three.compute()[1].item<double>(), 0.75);
}

// sigmoid(0.2) and sigmoid(0.7) are above 0.5. As probabilities they are 0 and 1.
TEST(OneDecision, MayBeStated) {
  const at::Tensor preds = floats({0.2, 0.7}, {2});
  const auto accuracy = [&](Scores scores) {
    return value_of(Accuracy({.task = Task::binary, .scores = scores}), preds, labels({0, 1}));
  };
  EXPECT_EQ(accuracy(Scores::automatic), 1);
  EXPECT_EQ(accuracy(Scores::probabilities), 1);
  EXPECT_EQ(accuracy(Scores::logits), 0.5);
  const auto matrix = [&](Scores scores) {
    ConfusionMatrix metric({.task = Task::binary, .scores = scores});
    metric.update(preds, labels({0, 1}));
    return metric.compute();
  };
  EXPECT_TRUE(matrix(Scores::logits).equal(labels({0, 1, 0, 1}).view({2, 2})));
  EXPECT_TRUE(matrix(Scores::probabilities).equal(labels({1, 0, 0, 1}).view({2, 2})));
  EXPECT_EQ(value_of(JaccardIndex({.task = Task::binary, .scores = Scores::logits}), preds, labels({0, 1})), 0.5);
  EXPECT_NEAR(
      value_of(CalibrationError({.task = Task::binary, .n_bins = 1, .scores = Scores::logits}), preds, labels({1, 1})),
      1 - (1 / (1 + std::exp(-0.2)) + 1 / (1 + std::exp(-0.7))) / 2, 1e-6);
  // With softmax, class 0 of the first sample is less probable than class 0 of the second, although its score is
  // higher.
  const at::Tensor classes = floats({0.5, 0.9, 0.4, 0.1}, {2, 2});
  EXPECT_EQ(value_of(AUROC({.num_classes = 2}), classes, labels({0, 1})), 0.5);
  EXPECT_EQ(value_of(AUROC({.num_classes = 2, .scores = Scores::logits}), classes, labels({0, 1})), 0);
}

TEST(OneDecision, RefusesScoresThatContradictTheOption) {
  Accuracy metric({.task = Task::binary, .scores = Scores::probabilities});
  EXPECT_TRUE(test::holds(test::error_of<Error>([&] {
                            metric.update(floats({0.5, 3.25}, {2}), labels({0, 1}));
                          }),
                          {"Accuracy: preds has the score 3.25", ".scores is probabilities", "set .scores to logits"}));
  metric.update(floats({1.0000001, -1e-7}, {2}), labels({1, 0}));  // rounding
  EXPECT_EQ(metric.compute().item<double>(), 1);
  Accuracy ignores({.task = Task::binary, .ignore_index = -1, .scores = Scores::probabilities});
  ignores.update(floats({0.7, 3.25}, {2}), labels({1, -1}));
  EXPECT_EQ(ignores.compute().item<double>(), 1);
}

// 300 probabilities and 2 more, 1.00009 and -0.00009: as logits, the scores 0.1 and 0.2 would be above 0.5.
TEST(OneDecision, IsNotMadeByRounding) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor preds = floats({0.1, 0.2, 0.9}, {3}).to(type), target = labels({0, 0, 1});
    const at::Tensor rounded = floats({1.00009, -0.00009}, {2}).to(type);
    Accuracy accuracy({.task = Task::binary});
    AUROC area({.task = Task::binary, .thresholds = 11});
    CalibrationError gap({.task = Task::binary, .n_bins = 10});
    for (int k = 0; k < 100; ++k) {
      accuracy.update(preds, target);
      area.update(preds, target);
      gap.update(preds, target);
    }
    accuracy.update(rounded, labels({1, 0}));
    area.update(rounded, labels({1, 0}));
    gap.update(rounded, labels({1, 0}));
    EXPECT_EQ(accuracy.compute().item<double>(), 1) << type;
    EXPECT_EQ(area.compute().item<double>(), 1) << type;
    // Gaps of 0.1 and 0.2 where the label is 0, and of 0.1 where it is 1; clamped, 1.00009 and -0.00009 have none. The
    // last bin holds 100 samples of 0.9 and the 1, the first one the 0.
    EXPECT_NEAR(gap.compute().item<double>(), (100 * 0.1 + 100 * 0.2 + 100 * 0.1) / 302, 1e-6) << type;
    accuracy.update(floats({1.0002}, {1}).to(type), labels({1}));
    EXPECT_NEAR(accuracy.compute().item<double>(), 103.0 / 303, 1e-6) << type << ": these are logits";
  }
}

// Probabilities, of which one is nan, and one of an ignored sample is anything: the threshold stays 0.5.
TEST(OneDecision, IsNotMadeByNanOrByIgnoredSamples) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor preds = floats({0.2, nan, 0.3, 7}, {4}).to(type);
    EXPECT_EQ(value_of(Accuracy({.task = Task::binary, .ignore_index = -1}), preds, labels({0, 0, 0, -1})), 1);
    AUROC metric({.num_classes = 2, .average = Average::none, .ignore_index = -1});
    metric.update(floats({0.5, 0.9, 0.4, 0.1, 7, -7}, {3, 2}).to(type), labels({0, 1, -1}));
    EXPECT_EQ(metric.compute()[0].item<double>(), 1);
  }
}

TEST(OneDecision, OfABatchsOwnValueFollowsTheBatchesBefore) {
  Accuracy metric({.task = Task::binary});
  metric(floats({0.2, 0.3}, {2}), labels({1, 1}));
  EXPECT_EQ(metric.batch_value().item<double>(), 0);
  metric(floats({-3, 2}, {2}), labels({0, 1}));
  metric(floats({0.2, 0.3}, {2}), labels({1, 1}));
  EXPECT_EQ(metric.batch_value().item<double>(), 1);
  EXPECT_EQ(metric.compute().item<double>(), 1);
  metric.reset();
  metric(floats({0.2, 0.3}, {2}), labels({1, 1}));
  EXPECT_EQ(metric.compute().item<double>(), 0) << "reset() forgets it";
}

}  // namespace
}  // namespace levin::one_decision_test
