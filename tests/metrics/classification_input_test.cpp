// Classification metrics: options, errors, checkpoints, and devices whose numbers are not read.
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "metrics/classification_cases.h"
#include "support/error_text.h"
#include "support/field_count.h"

namespace levin::classification_input_test {
namespace {

using namespace levin::metrics;
using levin::test::error_of;
using levin::test::holds;
using levin::testing::field_count;

at::Tensor labels(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

TEST(ClassificationOptions, ListEveryField) {
  EXPECT_EQ(field_count<ClassificationOptions>(), field_names<ClassificationOptions>().size());
  EXPECT_EQ(field_count<ConfusionMatrixOptions>(), field_names<ConfusionMatrixOptions>().size());
  EXPECT_EQ(field_count<CurveOptions>(), field_names<CurveOptions>().size());
  EXPECT_EQ(field_count<CalibrationErrorOptions>(), field_names<CalibrationErrorOptions>().size());
}

TEST(ClassificationOptions, AreReportedByTheNameOfTheMetric) {
  const auto accuracy = [](const ClassificationOptions& options) {
    return error_of<ConfigError>([&] { Accuracy metric(options); });
  };
  EXPECT_TRUE(
      holds(accuracy({}), {"Accuracy.num_classes: must be >= 2 for the task multiclass, got 0. For one label that "
                           "is 0 or 1 set .task to binary."}));
  EXPECT_TRUE(holds(accuracy({.num_labels = 3}), {"For several labels per sample set .task to multilabel."}));
  EXPECT_TRUE(holds(accuracy({.task = Task::multilabel, .num_classes = 3}),
                    {"Accuracy.num_labels: must be >= 2 for the task multilabel, got 0."}));
  EXPECT_TRUE(holds(accuracy({.num_classes = 3, .threshold = 1.5}), {"Accuracy.threshold: must be <= 1", "got 1.5"}));
  EXPECT_TRUE(holds(accuracy({.num_classes = 3, .top_k = 0}), {"Accuracy.top_k: must be >= 1, got 0."}));
  EXPECT_TRUE(
      holds(accuracy({.num_classes = 3, .top_k = 4}), {"Accuracy.top_k: must be <= num_classes, which is 3, got 4."}));
  EXPECT_TRUE(holds(accuracy({.task = Task::binary, .top_k = 2}),
                    {"Accuracy.top_k: is an option of the task multiclass only, got 2 for the task binary."}));
  EXPECT_TRUE(
      holds(accuracy({.num_classes = 3, .beta = 2}), {"Accuracy.beta: is an option of FBetaScore only, got 2"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { FBetaScore metric({.num_classes = 3, .beta = 0}); }),
                    {"FBetaScore.beta: must be > 0", "got 0"}));
}

TEST(ClassificationOptions, OfCurvesAndCalibrationAreCheckedToo) {
  EXPECT_TRUE(holds(error_of<ConfigError>([] { AUROC metric({.num_classes = 3, .average = Average::micro}); }),
                    {"AUROC.average: must be macro, weighted or none for the task multiclass, got micro."}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { AUROC metric({.num_classes = 3, .thresholds = 1}); }),
                    {"AUROC.thresholds: must be >= 2, or null, got 1."}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { CalibrationError metric({.task = Task::multilabel}); }),
                    {"CalibrationError.task: must be binary or multiclass, got", "multilabel"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { CalibrationError metric({.num_classes = 2, .n_bins = 0}); }),
                    {"CalibrationError.n_bins: must be >= 1, got 0."}));
}

TEST(ClassificationInput, OfOtherShapesIsAnErrorThatShowsThem) {
  Accuracy classes({.num_classes = 3});
  EXPECT_TRUE(
      holds(error_of<Error>([&] {
              classes.update(at::rand({4, 5}), labels({0, 1, 2, 0}));
            }),
            {"Accuracy: preds has the shape [4, 5] and target [4]. For the task multiclass preds are scores (N, C, "
             "...) with C = num_classes = 3, or labels (N, ...), and target is (N, ...)."}));
  EXPECT_TRUE(holds(error_of<Error>([&] { classes.update(at::rand({4, 3}), labels({0, 1, 2})); }), {"[4, 3]", "[3]"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      classes.update(at::rand({3}), labels({0, 1, 2}));
                    }),
                    {"[3] and target [3]"}));
  EXPECT_TRUE(
      holds(error_of<Error>([&] { classes.update(at::rand({}), at::zeros({}, at::kLong)); }), {"[] and target []"}));
  Accuracy binary({.task = Task::binary});
  EXPECT_TRUE(
      holds(error_of<Error>([&] {
              binary.update(at::rand({4, 1}), labels({0, 1, 1, 0}));
            }),
            {"Accuracy: preds has the shape [4, 1] and target [4]. For the task binary both have the same shape"}));
  Accuracy several({.task = Task::multilabel, .num_labels = 2});
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      several.update(at::rand({4, 3}), at::zeros({4, 3}, at::kLong));
                    }),
                    {"For the task multilabel both are (N, L, ...) with L = num_labels = 2."}));
  EXPECT_EQ(classes.update_count(), 0);
}

TEST(ClassificationInput, OfOtherTypesIsAnError) {
  Accuracy metric({.num_classes = 3});
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      metric.update(at::rand({2, 3}), at::rand({2}));
                    }),
                    {"Accuracy: target has the type Float. Labels are integers: pass target.to(at::kLong)."}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      metric.update(at::zeros({2}, at::kComplexFloat), labels({0, 1}));
                    }),
                    {"Accuracy: preds has the type ComplexFloat. Pass scores (floating point) or labels (integers)."}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      AUROC({.task = Task::binary}).update(labels({0, 1}), labels({0, 1}));
                    }),
                    {"AUROC: preds has the type Long. It needs scores, probabilities or logits, not labels."}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      metric.update(at::rand({2, 3}), labels({0, 1}).to(at::kMeta));
                    }),
                    {"Accuracy: preds is on cpu and target on meta. Move both to one device."}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      Accuracy({.num_classes = 3, .top_k = 2}).update(labels({0, 1}), labels({0, 1}));
                    }),
                    {"Accuracy: preds are labels, and top_k is 2. Pass scores (N, C, ...), or set .top_k to 1."}));
}

TEST(ClassificationInput, LabelsOutOfRangeAreNamedAndChangeNothing) {
  Accuracy metric({.num_classes = 3});
  EXPECT_TRUE(
      holds(error_of<Error>([&] {
              metric.update(at::rand({3, 3}), labels({0, 3, 1}));
            }),
            {"Accuracy: target has the label 3 at index 1 (flattened). Labels are 0 to 2, as num_classes is 3. If it "
             "marks what to leave out, set .ignore_index to it."}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      metric.update(labels({0, -1, 1}), labels({0, 1, 1}));
                    }),
                    {"Accuracy: preds has the label -1 at index 1"}));
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      ConfusionMatrix({.task = Task::binary}).update(at::rand({2}), labels({0, 2}));
                    }),
                    {"ConfusionMatrix: target has the label 2 at index 1 (flattened). Labels are 0 to 1."}));
  // In a type that loops do not read, too.
  EXPECT_TRUE(holds(error_of<Error>([&] {
                      metric.update(at::rand({3, 3}, at::kDouble), labels({0, 3, 1}));
                    }),
                    {"target has the label 3 at index 1"}));
  EXPECT_EQ(metric.update_count(), 0);
  for (const at::Tensor& state : metric.states()) EXPECT_EQ(state.sum().item<int64_t>(), 0);
}

TEST(ClassificationInput, MayBePartOfAGraph) {
  const at::Tensor scores = at::rand({4, 3}).requires_grad_(true);
  for (const auto type : {at::kFloat, at::kDouble}) {
    AUROC curve({.num_classes = 3});
    curve.update(scores.to(type), labels({0, 1, 2, 0}));
    for (const at::Tensor& state : curve.states()) EXPECT_FALSE(state.requires_grad());
    CalibrationError error({.num_classes = 3});
    error.update(scores.to(type), labels({0, 1, 2, 0}));
    for (const at::Tensor& state : error.states()) EXPECT_FALSE(state.requires_grad());
  }
}

TEST(ClassificationInput, OfAnyIntegerTypeHoldsLabels) {
  for (const auto type : {at::kByte, at::kInt, at::kShort, at::kChar}) {
    Accuracy metric({.num_classes = 3});
    metric.update(labels({0, 2, 1}).to(type), labels({0, 2, 0}).to(type));
    EXPECT_NEAR(metric.compute().item<double>(), 2.0 / 3, 1e-6);
  }
  Accuracy metric({.task = Task::binary});
  metric.update(at::tensor({0.9F, 0.1F}), labels({1, 0}).to(at::kBool));
  EXPECT_EQ(metric.compute().item<double>(), 1);
}

std::vector<std::unique_ptr<TensorMetric>> one_of_each(Task task) {
  std::vector<std::unique_ptr<TensorMetric>> all;
  const ClassificationOptions options{.task = task, .num_classes = 3, .num_labels = 3, .average = Average::macro};
  all.push_back(std::make_unique<Accuracy>(options));
  all.push_back(std::make_unique<Precision>(options));
  all.push_back(std::make_unique<Recall>(options));
  all.push_back(std::make_unique<Specificity>(options));
  all.push_back(std::make_unique<F1Score>(options));
  ClassificationOptions pooled = options;
  pooled.average = Average::micro;
  pooled.ignore_index = -1;
  pooled.top_k = task == Task::multiclass ? 2 : 1;
  all.push_back(std::make_unique<Accuracy>(pooled));
  all.push_back(
      std::make_unique<ConfusionMatrix>(ConfusionMatrixOptions{.task = task, .num_classes = 3, .num_labels = 3}));
  const CurveOptions exact{.task = task, .num_classes = 3, .num_labels = 3, .ignore_index = -1};
  CurveOptions binned = exact;
  binned.thresholds = 5;
  all.push_back(std::make_unique<AUROC>(exact));
  all.push_back(std::make_unique<AUROC>(binned));
  all.push_back(std::make_unique<AveragePrecision>(binned));
  if (task != Task::multilabel) {
    all.push_back(std::make_unique<CalibrationError>(CalibrationErrorOptions{.task = task, .num_classes = 3}));
  }
  return all;
}

// The device "meta" has shapes and no numbers: an operator that would read one throws. Two operators that are used have
// no shapes there in C++.
TORCH_LIBRARY_IMPL(aten, Meta, meta) {
  meta.impl("where.self",
            [](const at::Tensor& is, const at::Tensor& a, const at::Tensor& b) { return a.add(b).add(is); });
  meta.impl("bucketize.Tensor",
            [](const at::Tensor& numbers, const at::Tensor&, bool, bool) { return numbers.to(at::kLong); });
}

TEST(ClassificationOnADevice, ReadsNoNumberInUpdate) {
  for (const Task task : {Task::binary, Task::multiclass, Task::multilabel}) {
    const bool has_classes = task != Task::binary;
    const at::Tensor preds = has_classes ? at::rand({4, 3, 2}) : at::rand({4, 2});
    const at::Tensor target =
        at::zeros(task == Task::multilabel ? at::IntArrayRef({4, 3, 2}) : at::IntArrayRef({4, 2}), at::kLong);
    for (const auto& metric : one_of_each(task)) {
      SCOPED_TRACE(metric->name());
      (*metric)(preds, target);  // states begin on the CPU
      for (int k = 0; k < 2; ++k) (*metric)(preds.to(at::kMeta), target.to(at::kMeta));
      for (const at::Tensor& state : metric->states()) EXPECT_TRUE(state.is_meta());
      EXPECT_EQ(metric->update_count(), 3);
    }
  }
}

// What a device reports about labels out of range, as its states arrive on the CPU.
TEST(ClassificationOnADevice, LabelsOutOfRangeMakeTheValueNan) {
  for (const auto& metric : one_of_each(Task::multiclass)) {
    SCOPED_TRACE(metric->name());
    metric->update(at::rand({4, 3}), labels({0, 1, 2, 0}));
    State saved = metric->state_dict();
    saved.tensors.at("out_of_range").fill_(2);
    metric->load_state_dict(saved);
    if (metric->name() == "ConfusionMatrix") {
      EXPECT_TRUE(
          holds(error_of<Error>([&] { static_cast<void>(metric->compute()); }),
                {"ConfusionMatrix: 2 labels on cpu were out of range. Labels are 0 to 2; on the CPU the first one is "
                 "named."}));
    } else {
      EXPECT_TRUE(metric->compute().isnan().all().item<bool>());
    }
  }
}

TEST(ClassificationState, OfACheckpointContinuesToTheSameValue) {
  for (const Task task : {Task::binary, Task::multiclass, Task::multilabel}) {
    const auto ours = one_of_each(task);
    const auto theirs = one_of_each(task);
    for (size_t k = 0; k < ours.size(); ++k) {
      SCOPED_TRACE(ours[k]->name());
      for (int step = 0; step < 3; ++step) {
        const at::Tensor preds = at::rand(task == Task::binary ? at::IntArrayRef({8}) : at::IntArrayRef({8, 3}));
        const at::Tensor target =
            at::randint(2, task == Task::multilabel ? at::IntArrayRef({8, 3}) : at::IntArrayRef({8}), at::kLong);
        (*ours[k])(preds, target);
        if (step == 1) theirs[k]->load_state_dict(ours[k]->state_dict());
        if (step == 2) (*theirs[k])(preds, target);
      }
      EXPECT_TRUE(ours[k]->compute().equal(theirs[k]->compute()));
      EXPECT_TRUE(ours[k]->batch_value().equal(theirs[k]->batch_value()));
    }
  }
}

}  // namespace
}  // namespace levin::classification_input_test
