#include "levin/metrics/metric_collection.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "levin/metrics/regression.h"
#include "levin/metrics/text.h"
#include "support/error_text.h"
#include "support/field_count.h"

namespace levin::metric_collection_test {
namespace {

using namespace metrics;

const at::Tensor kPreds = at::tensor({1.0F, 2.0F, 4.0F});
const at::Tensor kTarget = at::tensor({1.0F, 3.0F, 6.0F});

MetricCollection errors(const std::string& prefix) {
  MetricCollection all({.prefix = prefix});
  all.add<MeanAbsoluteError>("mae").add<MeanSquaredError>("rmse", MeanSquaredErrorOptions{.squared = false});
  return all;
}

TEST(MetricCollection, OptionsListEveryField) {
  EXPECT_EQ(testing::field_count<MetricCollectionOptions>(), field_names<MetricCollectionOptions>().size());
}

TEST(MetricCollection, FeedsAllAndGivesTheirValuesByName) {
  MetricCollection all = errors("val_");
  all.update(kPreds, kTarget);
  const auto values = all.compute();
  ASSERT_EQ(values.size(), 2U);
  EXPECT_DOUBLE_EQ(values.at("val_mae").item<double>(), 1.0);
  EXPECT_DOUBLE_EQ(values.at("val_rmse").item<double>(), std::sqrt(5.0 / 3));
  all.reset();
  EXPECT_EQ(all["mae"].update_count(), 0);
}

TEST(MetricCollection, CalledItKeepsTheValuesOfTheBatch) {
  MetricCollection all = errors("");
  all(kPreds, kTarget);
  all(kTarget, kTarget);
  EXPECT_EQ(all["mae"].batch_value().item<double>(), 0);
  EXPECT_DOUBLE_EQ(all["mae"].compute().item<double>(), 0.5);
}

TEST(MetricCollection, IteratesOverNamesAndMetricsInTheOrderInWhichTheyWereAdded) {
  MetricCollection all({.prefix = "val_", .postfix = "_epoch"});
  all.add<R2Score>("r2").add<MeanAbsoluteError>("mae");
  std::vector<std::string> names;
  for (auto& [name, metric] : all) {
    names.push_back(name + " " + metric.name());
    metric.reset();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"val_r2_epoch R2Score", "val_mae_epoch MeanAbsoluteError"}));
  EXPECT_EQ(all.size(), 2U);
  EXPECT_EQ(&all["r2"], &all["val_r2_epoch"]);
}

TEST(MetricCollection, ACloneHasTheOptionsAndNothingOfTheState) {
  MetricCollection val = errors("val_");
  val.update(kPreds, kTarget);
  MetricCollection test = val.clone({.prefix = "test_"});
  EXPECT_EQ(test["rmse"].update_count(), 0);
  test.update(kPreds, kTarget);
  test.update(kTarget, kTarget);
  EXPECT_DOUBLE_EQ(test.compute().at("test_rmse").item<double>(), std::sqrt(5.0 / 6));
  EXPECT_DOUBLE_EQ(val.compute().at("val_rmse").item<double>(), std::sqrt(5.0 / 3));
}

TEST(MetricCollection, CanBeAssigned) {
  MetricCollection all;
  all = errors("a_");
  all.update(kPreds, kTarget);
  all = errors("b_");
  EXPECT_EQ(all.begin()->name, "b_mae");
  EXPECT_EQ(all["mae"].update_count(), 0);
  EXPECT_FALSE(all["mae"].self().expired());
}

TEST(MetricCollection, RefersToAMetricOfTheModule) {
  MeanAbsoluteError mae;
  MetricCollection all = errors("val_");
  all.add("own", mae);
  all(kPreds, kTarget);
  EXPECT_DOUBLE_EQ(mae.compute().item<double>(), 1.0);
  EXPECT_TRUE(
      test::holds(test::error_of<Error>([&] { static_cast<void>(all.clone({})); }),
                  {"MetricCollection: \"own\" cannot be cloned", "only refers to it", "add<MeanAbsoluteError>(name"}));
}

TEST(MetricCollection, FeedsText) {
  MetricCollection text_metrics;
  text_metrics.add<BLEUScore>("bleu").add<EditDistance>("edits");
  text_metrics({"the cat sat on the mat"}, TextMetric::Texts{"the cat sat on the mat"});
  text_metrics.update({"rain"}, std::vector<TextMetric::Texts>{{"shine"}});
  EXPECT_DOUBLE_EQ(text_metrics.compute().at("edits").item<double>(), 1.5);
}

TEST(MetricCollection, AMetricOfADifferentKindIsAnErrorBeforeAnyIsFed) {
  MetricCollection all = errors("");
  all.add<BLEUScore>("bleu");
  EXPECT_TRUE(test::holds(test::error_of<Error>([&] { all.update(kPreds, kTarget); }),
                          {"\"bleu\" is a BLEUScore, which does not take tensors", "put it into another collection"}));
  EXPECT_EQ(all["mae"].update_count(), 0);
  EXPECT_TRUE(test::holds(test::error_of<Error>([&] { all({"a"}, TextMetric::Texts{"a"}); }),
                          {"\"mae\" is a MeanAbsoluteError, which does not take text"}));
}

TEST(MetricCollection, NamesThatAreTakenOrUnknownAreErrors) {
  MetricCollection all = errors("val_");
  EXPECT_TRUE(test::holds(test::error_of<Error>([&] { all.add<R2Score>("mae"); }),
                          {"there is a metric called \"val_mae\" already", "a name of its own"}));
  EXPECT_TRUE(
      test::holds(test::error_of<Error>([&] { static_cast<void>(all["val_rmsd"]); }),
                  {"no metric is called \"val_rmsd\"", "Did you mean \"val_rmse\"?", "There are: val_mae, val_rmse."}));
}

}  // namespace
}  // namespace levin::metric_collection_test
