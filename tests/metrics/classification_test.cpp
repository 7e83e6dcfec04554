// Classification metrics: values that are easy to count, and the edges of scores, thresholds and ranks.
#include "levin/metrics/classification.h"

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "metrics/classification_cases.h"

namespace levin::classification_test {
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

// 4 of class 0, 2 of class 1, 0 of class 2: 3, 1 and 0 are correct; one is predicted as class 2, two as wrong classes.
at::Tensor six_predictions() {
  return labels({0, 0, 0, 2, 1, 0});
}
at::Tensor six_targets() {
  return labels({0, 0, 0, 0, 1, 1});
}

TEST(Accuracy, IsTheShareOfRightPredictions) {
  EXPECT_NEAR(value_of(Accuracy({.num_classes = 3}), six_predictions(), six_targets()), 4.0 / 6, 1e-6);
  EXPECT_NEAR(value_of(Accuracy({.num_classes = 3, .average = Average::weighted}), six_predictions(), six_targets()),
              4.0 / 6, 1e-6);
  // Class 2 was never true, but it was predicted, and so it counts.
  EXPECT_NEAR(value_of(Accuracy({.num_classes = 3, .average = Average::macro}), six_predictions(), six_targets()),
              (0.75 + 0.5 + 0) / 3, 1e-6);
  EXPECT_NEAR(value_of(Accuracy({.num_classes = 4, .average = Average::macro}), six_predictions(), six_targets()),
              (0.75 + 0.5 + 0) / 3, 1e-6);
}

TEST(Accuracy, HasNoDataToStartWithAndIs0) {
  EXPECT_EQ(Accuracy({.num_classes = 3}).compute().item<double>(), 0);
  EXPECT_EQ(value_of(Accuracy({.num_classes = 3}), at::zeros({0, 3}), labels({})), 0);
}

TEST(PrecisionRecall, CountByClass) {
  Precision precision({.num_classes = 3, .average = Average::none});
  precision.update(six_predictions(), six_targets());
  EXPECT_TRUE(precision.compute().allclose(floats({0.75, 1, 0}, {3})));
  Recall recall({.num_classes = 3, .average = Average::none});
  recall.update(six_predictions(), six_targets());
  EXPECT_TRUE(recall.compute().allclose(floats({0.75, 0.5, 0}, {3})));
  Specificity specificity({.num_classes = 3, .average = Average::none});
  specificity.update(six_predictions(), six_targets());
  EXPECT_TRUE(specificity.compute().allclose(floats({0.5, 1, 5.0 / 6}, {3})));
}

TEST(FBetaScore, IsTheHarmonicMeanOfPrecisionAndRecall) {
  const at::Tensor preds = floats({0.9, 0.8, 0.7, 0.2, 0.1}, {5});
  const at::Tensor target = labels({1, 1, 0, 1, 1});  // precision 2/3, recall 1/2
  EXPECT_NEAR(value_of(F1Score({.task = Task::binary}), preds, target), 2 / (1.5 + 2), 1e-6);
  EXPECT_NEAR(value_of(FBetaScore({.task = Task::binary, .beta = 2}), preds, target), 5 / (1.5 + 4 * 2), 1e-6);
}

TEST(ConfusionMatrix, HasARowForEachTrueClass) {
  ConfusionMatrix metric({.num_classes = 3});
  metric.update(six_predictions(), six_targets());
  EXPECT_TRUE(metric.compute().equal(labels({3, 0, 1, 1, 1, 0, 0, 0, 0}).view({3, 3})));
  ConfusionMatrix shares({.num_classes = 3, .normalize = Normalize::truth});
  shares.update(six_predictions(), six_targets());
  EXPECT_TRUE(shares.compute().allclose(floats({0.75, 0, 0.25, 0.5, 0.5, 0, 0, 0, 0}, {3, 3})));
}

TEST(Auroc, IsTheShareOfPairsInTheRightOrder) {
  const at::Tensor preds = floats({0.1, 0.4, 0.35, 0.8}, {4});
  const at::Tensor target = labels({0, 0, 1, 1});
  EXPECT_NEAR(value_of(AUROC({.task = Task::binary}), preds, target), 0.75, 1e-6);
  EXPECT_NEAR(value_of(AUROC({.task = Task::binary}), at::full({4}, 0.5), target), 0.5, 1e-6);  // ties count half
  EXPECT_NEAR(value_of(AveragePrecision({.task = Task::binary}), preds, target), 0.5 * 1 + 0.5 * 2 / 3, 1e-6);
}

// Pairs counted one by one; scores in few levels, so that many are equal.
TEST(Auroc, CountsPairsAlsoAmongEqualScoresAndRareClasses) {
  torch::manual_seed(5);
  for (const int64_t levels : {2, 7, 1000}) {
    const int64_t samples = 300, classes = 5;
    const at::Tensor preds = at::randint(levels, {samples, classes}).div(static_cast<double>(levels)).to(at::kFloat);
    const at::Tensor target = at::randint(40, {samples}, at::kLong).clamp_max(classes - 1);  // the last class is common
    AUROC metric({.num_classes = classes, .average = Average::none});
    metric.update(preds, target);
    const at::Tensor value = metric.compute();
    for (int64_t c = 0; c < classes; ++c) {
      const at::Tensor own = preds.select(1, c).masked_select(target.eq(c)).unsqueeze(1);
      const at::Tensor other = preds.select(1, c).masked_select(target.ne(c)).unsqueeze(0);
      const double right = own.gt(other).sum().item<double>() + 0.5 * own.eq(other).sum().item<double>();
      EXPECT_NEAR(value[c].item<double>(), right / static_cast<double>(own.numel() * other.numel()), 1e-6);
    }
  }
}

TEST(Auroc, IsNanWithoutData) {
  EXPECT_TRUE(AUROC({.task = Task::binary}).compute().isnan().item<bool>());
  EXPECT_TRUE(AUROC({.num_classes = 3}).compute().isnan().item<bool>());
  EXPECT_EQ(AUROC({.num_classes = 3, .average = Average::none}).compute().isnan().sum().item<int64_t>(), 3);
  EXPECT_TRUE(AveragePrecision({.task = Task::multilabel, .num_labels = 2}).compute().isnan().item<bool>());
  for (const auto average : {Average::macro, Average::weighted}) {
    EXPECT_TRUE(AUROC({.num_classes = 3, .average = average}).compute().isnan().item<bool>());
    EXPECT_TRUE(AveragePrecision({.num_classes = 3, .average = average}).compute().isnan().item<bool>());
    AUROC ignored({.num_classes = 3, .average = average, .ignore_index = -1});
    ignored.update(at::full({2, 3}, 1.0 / 3), labels({-1, -1}));
    EXPECT_TRUE(ignored.compute().isnan().item<bool>());
  }
  AUROC all_ignored({.task = Task::binary, .ignore_index = -1});
  all_ignored.update(floats({0.1, 0.2}, {2}), labels({-1, -1}));
  EXPECT_TRUE(all_ignored.compute().isnan().item<bool>());
}

TEST(Auroc, WithThresholdsHasMemoryThatDoesNotGrow) {
  AUROC metric({.task = Task::binary, .thresholds = 100});
  for (int k = 0; k < 5; ++k) metric.update(at::rand({1000}), at::randint(2, {1000}, at::kLong));
  for (const at::Tensor& state : metric.states()) EXPECT_LE(state.numel(), 202);
}

TEST(CalibrationError, IsTheGapBetweenConfidenceAndAccuracy) {
  const at::Tensor preds = floats({0.25, 0.25, 0.75, 0.75}, {4});
  const at::Tensor target = labels({0, 0, 1, 0});  // gaps: 0.25 in one half of them, 0.25 in the other
  EXPECT_NEAR(value_of(CalibrationError({.task = Task::binary, .n_bins = 2}), preds, target), 0.25, 1e-6);
  const at::Tensor one_sided = labels({0, 0, 1, 1});
  EXPECT_NEAR(value_of(CalibrationError({.task = Task::binary, .n_bins = 2, .norm = CalibrationNorm::max}), preds,
                       labels({1, 1, 1, 1})),
              0.75, 1e-6);
  EXPECT_NEAR(
      value_of(CalibrationError({.task = Task::binary, .n_bins = 2, .norm = CalibrationNorm::l2}), preds, one_sided),
      0.25, 1e-6);
}

TEST(TopK, CountsTheTargetAmongTheHighestScores) {
  const at::Tensor scores = floats({0.5, 0.3, 0.2, 0.1, 0.5, 0.4}, {2, 3});
  EXPECT_NEAR(value_of(Accuracy({.num_classes = 3}), scores, labels({1, 2})), 0, 1e-6);
  EXPECT_NEAR(value_of(Accuracy({.num_classes = 3, .top_k = 2}), scores, labels({1, 2})), 1, 1e-6);
  EXPECT_NEAR(value_of(Accuracy({.num_classes = 3, .top_k = 2}), scores, labels({2, 2})), 0.5, 1e-6);
}

TEST(TopK, OfEqualScoresTheFirstIsAhead) {
  const at::Tensor scores = at::full({3, 3}, 0.5);
  for (const auto type : {at::kFloat, at::kDouble}) {
    EXPECT_NEAR(value_of(Accuracy({.num_classes = 3}), scores.to(type), labels({0, 1, 2})), 1.0 / 3, 1e-6);
    EXPECT_NEAR(value_of(Accuracy({.num_classes = 3, .top_k = 2}), scores.to(type), labels({0, 1, 2})), 2.0 / 3, 1e-6);
  }
}

TEST(TopK, NanIsTheHighestScoreAsInArgmax) {
  for (const int64_t classes : {3, 200}) {
    const at::Tensor scores = at::rand({4, classes});
    scores.select(1, 2).fill_(nan);
    for (const auto type : {at::kFloat, at::kDouble}) {
      EXPECT_EQ(value_of(Accuracy({.num_classes = classes}), scores.to(type), at::full({4}, 2, at::kLong)), 1);
      EXPECT_EQ(value_of(Accuracy({.num_classes = classes, .top_k = 2}), scores.to(type), at::full({4}, 2, at::kLong)),
                1);
    }
    const at::Tensor planes = scores.unsqueeze(2).expand({4, classes, 5}).contiguous();
    EXPECT_EQ(value_of(Accuracy({.num_classes = classes}), planes, at::full({4, 5}, 2, at::kLong)), 1);
  }
}

// Loops search blocks, rows and columns; at::argmax is what they must equal, wherever the highest score is.
TEST(HighestScore, IsFoundAtEveryPlaceOfARow) {
  for (const int64_t classes : {2, 63, 64, 65, 130, 300}) {
    const at::Tensor scores = at::rand({classes, classes}).neg();
    scores.diagonal().fill_(2);
    const at::Tensor target = at::arange(classes, at::kLong);
    EXPECT_EQ(value_of(Accuracy({.num_classes = classes}), scores, target), 1) << classes;
    const at::Tensor random = at::randn({50, classes});
    EXPECT_EQ(value_of(Accuracy({.num_classes = classes}), random, random.argmax(1)), 1) << classes;
    const at::Tensor planes = at::randn({2, classes, 300});
    EXPECT_EQ(value_of(Accuracy({.num_classes = classes}), planes, planes.argmax(1)), 1) << classes;
    const at::Tensor lowest = at::full({3, classes}, -std::numeric_limits<double>::infinity()).to(at::kFloat);
    EXPECT_EQ(value_of(Accuracy({.num_classes = classes}), lowest, at::zeros({3}, at::kLong)), 1) << classes;
  }
}

TEST(Threshold, IsCrossedWhereTheSigmoidCrossesIt) {
  for (const double threshold : {0.0, 0.1, 0.5, 0.9, 0.99999, 1.0}) {
    const at::Tensor near = at::linspace(-1e-3, 1e-3, 2000, at::kDouble);  // without the threshold itself
    const double middle = threshold > 0 && threshold < 1 ? std::log(threshold / (1 - threshold)) : 0;
    const at::Tensor logits = at::cat({near.add(middle), at::linspace(-120, 120, 500, at::kDouble)}).to(at::kFloat);
    const at::Tensor expected = logits.to(at::kDouble).sigmoid().gt(threshold).to(at::kLong);
    Accuracy metric({.task = Task::binary, .threshold = threshold});
    metric.update(logits, expected);
    EXPECT_EQ(metric.compute().item<double>(), 1) << threshold;
  }
}

// A float32 sigmoid is 1 from 17 on, and the nearest float of 0.99999999 is 1: log-odds of 18.4.
TEST(Threshold, NearOneIsComparedInLogOdds) {
  const at::Tensor logits = floats({18, 19, 30, -30}, {4});
  const at::Tensor expected = labels({0, 1, 1, 0});
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const ClassificationOptions binary{.task = Task::binary, .threshold = 0.99999999};
    EXPECT_EQ(value_of(Accuracy(binary), logits.to(type), expected), 1) << type;
    ConfusionMatrix matrix({.task = Task::multilabel, .num_labels = 2, .threshold = 0.99999999});
    matrix.update(logits.to(type).view({2, 2}), expected.view({2, 2}));
    EXPECT_TRUE(matrix.compute().equal(labels({1, 0, 0, 1, 1, 0, 0, 1}).view({2, 2, 2}))) << type;
    // No probability is above 1, and every probability except sigmoid(-infinity) is above 0.
    EXPECT_EQ(value_of(Accuracy({.task = Task::binary, .threshold = 1.0}), logits.to(type), labels({0, 0, 0, 0})), 1);
    EXPECT_EQ(value_of(Accuracy({.task = Task::binary, .threshold = 0.0}), logits.to(type), labels({1, 1, 1, 1})), 1);
  }
}

TEST(Threshold, NearOneLeavesAProbabilityOfOneAboveIt) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor preds = at::tensor({0.5, 1.0}, at::kDouble).to(type);
    EXPECT_EQ(value_of(Accuracy({.task = Task::binary, .threshold = 0.99999999}), preds, labels({0, 1})), 1) << type;
    EXPECT_EQ(value_of(Accuracy({.task = Task::binary, .threshold = 1.0}), preds, labels({0, 0})), 1) << type;
  }
  const at::Tensor rounded = floats({0.1, 1.0000001}, {2});
  EXPECT_EQ(value_of(Accuracy({.task = Task::binary, .threshold = 0.1}), rounded, labels({0, 1})), 1)
      << "0.1F is not above 0.1";
  EXPECT_EQ(value_of(Accuracy({.task = Task::binary, .threshold = 1.0}), rounded, labels({0, 0})), 1)
      << "rounding puts no probability above 1";
}

TEST(IgnoreIndex, LeavesSamplesOutRegardlessOfTheirContents) {
  Accuracy metric({.num_classes = 3, .ignore_index = -100});
  metric.update(labels({0, -100, 7, 1}), labels({0, -100, -100, 2}));
  EXPECT_NEAR(metric.compute().item<double>(), 0.5, 1e-6);
}

// ---- what averages leave out ---------------------------------------------------------------------------------------

TEST(IgnoreIndex, IsNotAClassOfAMacroAverage) {
  const at::Tensor scores = floats({0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.1, 0.9}, {4, 2});
  const ClassificationOptions macro{.num_classes = 2, .average = Average::macro, .ignore_index = 0};
  // Two samples of class 1 are left, and one of them is found.
  for (const at::Tensor& preds : {scores, scores.to(at::kDouble), scores.argmax(1)}) {
    EXPECT_EQ(value_of(Recall(macro), preds, labels({0, 0, 1, 1})), 0.5);
    EXPECT_EQ(value_of(Accuracy(macro), preds, labels({0, 0, 1, 1})), 0.5);
    EXPECT_EQ(value_of(Precision(macro), preds, labels({0, 0, 1, 1})), 1);
    EXPECT_NEAR(value_of(F1Score(macro), preds, labels({0, 0, 1, 1})), 2.0 / 3, 1e-6);
    EXPECT_NEAR(value_of(JaccardIndex({.num_classes = 2, .ignore_index = 0}), preds, labels({0, 0, 1, 1})), 0.5, 1e-6);
  }
  EXPECT_EQ(value_of(Specificity({.num_classes = 3, .average = Average::macro, .ignore_index = 0}),
                     labels({1, 2, 1, 0}), labels({1, 2, 2, 0})),
            (0.5 + 1) / 2);  // class 1: one of two others is taken for it; class 2: none
}

TEST(IgnoreIndex, IsNotAClassOfACurvesMacroAverage) {
  const at::Tensor scores = floats({0.2, 0.6, 0.2, 0.1, 0.7, 0.2, 0.1, 0.2, 0.7, 0.8, 0.1, 0.1}, {4, 3});
  for (const std::optional<int64_t> thresholds : {std::optional<int64_t>(), std::optional<int64_t>(11)}) {
    for (const auto average : {Average::macro, Average::weighted}) {
      const CurveOptions options{.num_classes = 3, .thresholds = thresholds, .average = average, .ignore_index = 0};
      EXPECT_EQ(value_of(AUROC(options), scores, labels({1, 1, 2, 0})), 1);
      EXPECT_EQ(value_of(AveragePrecision(options), scores, labels({1, 1, 2, 0})), 1);
    }
  }
}

// The second label is unknown for every sample.
TEST(IgnoreIndex, OfALabelWithoutSamplesLeavesItOutOfTheMacroAverage) {
  const at::Tensor preds = floats({0.9, 0.2, 0.1, 0.8}, {2, 2});
  const at::Tensor target = labels({1, -1, 0, -1}).view({2, 2});
  const ClassificationOptions macro{
      .task = Task::multilabel, .num_labels = 2, .average = Average::macro, .ignore_index = -1};
  EXPECT_EQ(value_of(Accuracy(macro), preds, target), 1);
  EXPECT_EQ(value_of(Recall(macro), preds, target), 1);
  EXPECT_EQ(value_of(F1Score(macro), preds, target), 1);
  EXPECT_EQ(value_of(JaccardIndex({.task = Task::multilabel, .num_labels = 2, .ignore_index = -1}), preds, target), 1);
  for (const std::optional<int64_t> thresholds : {std::optional<int64_t>(), std::optional<int64_t>(11)}) {
    const CurveOptions options{.task = Task::multilabel, .num_labels = 2, .thresholds = thresholds, .ignore_index = -1};
    EXPECT_EQ(value_of(AUROC(options), preds, target), 1);
    EXPECT_EQ(value_of(AveragePrecision(options), preds, target), 1);
  }
}

// Accuracy 0.5 and a mean confidence of 0.75: 1 is in the bin of 0.5 if there is only one.
TEST(CalibrationError, AConfidenceOf1IsInTheLastBin) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    EXPECT_NEAR(
        value_of(CalibrationError({.task = Task::binary, .n_bins = 1}), floats({1, 0.5}, {2}).to(type), labels({0, 1})),
        0.25, 1e-6);
  }
}

}  // namespace
}  // namespace levin::classification_test
