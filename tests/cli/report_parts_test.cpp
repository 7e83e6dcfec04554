// The parts of a report: thinning, smoothing, axes, health, and text of files in a page.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "cli/metric_series.h"
#include "levin/cli/runs/chart_svg.h"
#include "levin/cli/runs/html.h"
#include "levin/cli/runs/report_data.h"
#include "levin/cli/runs/report_page.h"
#include "levin/cli/runs/run_health.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::report_parts_test {
namespace {

using namespace test;

TEST(Smoothing, OfAConstantIsTheConstant) {
  for (const double value : smoothed_values(std::vector<double>(50, 3.5), {}, 0.9)) EXPECT_NEAR(value, 3.5, 1e-12);
}

// With weight w, the k-th smoothed value is the mean of all values so far, value j weighted with w^(k - j).
TEST(Smoothing, IsTheMeanWithWeightsThatFallGeometrically) {
  const std::vector<double> values{4, -1, 7, 2, 2, 9};
  for (const double weight : {0.1, 0.6, 0.99}) {
    const std::vector<double> smoothed = smoothed_values(values, {}, weight);
    for (size_t k = 0; k < values.size(); ++k) {
      double sum = 0;
      double weights = 0;
      for (size_t j = 0; j <= k; ++j) {
        sum += std::pow(weight, k - j) * values[j];
        weights += std::pow(weight, k - j);
      }
      EXPECT_NEAR(smoothed[k], sum / weights, 1e-12);
    }
  }
  EXPECT_EQ(smoothed_values(values, {}, 0), values);
}

TEST(Smoothing, OfStretchesEqualsTheirValuesWhereTheValuesAreEqual) {
  const std::vector<double> stretches{5, 1, 3};
  const std::vector<int64_t> counts{4, 1, 7};
  std::vector<double> whole;
  for (size_t k = 0; k < 3; ++k) whole.insert(whole.end(), static_cast<size_t>(counts[k]), stretches[k]);
  const std::vector<double> of_whole = smoothed_values(whole, {}, 0.8);
  const std::vector<double> of_stretches = smoothed_values(stretches, counts, 0.8);
  EXPECT_NEAR(of_stretches[0], of_whole[3], 1e-12);
  EXPECT_NEAR(of_stretches[1], of_whole[4], 1e-12);
  EXPECT_NEAR(of_stretches[2], of_whole[11], 1e-12);
}

TEST(Thinning, KeepsMinimaMaximaAndBothEnds) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise;
  MetricSeries series = series_of(100'000, [&](int64_t) { return noise(random); });
  series.values[12'345] = 99;
  series.values[77'777] = -99;
  const Curve curve = thin_curve(series, 1000);
  EXPECT_LE(curve.values.size(), 1002U);
  EXPECT_GT(curve.values.size(), 900U);
  EXPECT_EQ(curve.points, 100'000);
  EXPECT_EQ(*std::max_element(curve.values.begin(), curve.values.end()), 99);
  EXPECT_EQ(*std::min_element(curve.values.begin(), curve.values.end()), -99);
  EXPECT_EQ(curve.steps[static_cast<size_t>(std::max_element(curve.values.begin(), curve.values.end()) -
                                            curve.values.begin())],
            123'450);
  EXPECT_EQ(curve.steps.front(), 0);
  EXPECT_EQ(curve.values.front(), series.values.front());
  EXPECT_EQ(curve.steps.back(), 999'990);
  EXPECT_EQ(curve.values.back(), series.values.back());
  EXPECT_TRUE(std::is_sorted(curve.steps.begin(), curve.steps.end()));
  EXPECT_EQ(std::accumulate(curve.counts.begin(), curve.counts.end(), int64_t{0}), 100'000);
  double sum = 0;
  for (size_t k = 0; k < curve.means.size(); ++k) sum += curve.means[k] * static_cast<double>(curve.counts[k]);
  EXPECT_NEAR(sum, std::accumulate(series.values.begin(), series.values.end(), 0.0), 1e-6);
}

TEST(Thinning, LeavesShortCurvesAndCountsWhatIsNotFinite) {
  MetricSeries series = series_of(10, [](int64_t k) { return static_cast<double>(k); });
  series.values[4] = std::nan("");
  series.values[6] = INFINITY;
  const Curve curve = thin_curve(series, 100);
  EXPECT_FALSE(curve.is_thinned());
  EXPECT_EQ(curve.values, (std::vector<double>{0, 1, 2, 3, 5, 7, 8, 9}));
  EXPECT_EQ(curve.nonfinite, 2);
  EXPECT_EQ(curve.first_nonfinite_step, 40);
}

std::string labels(double low, double high, int wanted) {
  std::string all;
  for (const Tick& tick : axis_ticks(low, high, wanted)) all += (all.empty() ? "" : " ") + tick.label;
  return all;
}

TEST(Axis, HasRoundNumbers) {
  EXPECT_EQ(labels(0, 1, 5), "0 0.2 0.4 0.6 0.8 1.0");
  EXPECT_EQ(labels(-0.013, 0.012, 5), "-0.010 -0.005 0 0.005 0.010");
  EXPECT_EQ(labels(0, 52'000, 5), "0 20k 40k");
  EXPECT_EQ(labels(0, 3e7, 3), "0 10M 20M 30M");
  EXPECT_EQ(labels(0.8512, 0.8949, 4), "0.86 0.88");
  EXPECT_EQ(labels(1e-6, 9e-6, 4), "2e-06 4e-06 6e-06 8e-06");
  EXPECT_EQ(labels(3, 3, 4), "");
  EXPECT_EQ(labels(std::nan(""), 3, 4), "");
}

TEST(Axis, LeavesOutliersOutWhereTheyWouldHideTheRest) {
  std::vector<double> values(200, 0);
  for (size_t k = 0; k < values.size(); ++k) values[k] = 1 + 0.01 * static_cast<double>(k % 50);
  const std::vector<double> plain = values;
  values[100] = 5000;
  EXPECT_LT(value_range(values, plain).high, 2);
  EXPECT_GT(value_range({1, 2, 5000}, {}).high, 5000);  // of a few values each counts
  const ValueRange constant = value_range({0.5, 0.5, 0.5}, {});
  EXPECT_LT(constant.low, 0.5);
  EXPECT_GT(constant.high, 0.5);
}

TEST(Axis, IsFiniteForTheLargestAndTheSmallestNumbers) {
  const double most = std::numeric_limits<double>::max();
  for (const auto& [low, high] : {std::pair(-most, most), {most, most}, {0.0, 5e-324}, {-1e-320, 1e-320}}) {
    const ValueRange range = value_range({low, high}, {});
    EXPECT_TRUE(std::isfinite(range.low) && std::isfinite(range.high) && range.low < range.high) << low << " " << high;
    const Curve curve{.steps = {1, 2}, .values = {low, high}, .points = 2};
    const Chart chart{"loss", {{.label = "loss", .curve = &curve}}};
    const std::string svg = chart_svg(chart, {{"run", 0}}, 0);
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
  }
}

const HealthFinding* finding(const std::vector<HealthFinding>& all, const std::string& topic) {
  for (const auto& each : all) {
    if (each.topic == topic) return &each;
  }
  return nullptr;
}

TEST(RunHealth, ReportsWhatWasSeenAndWhatToDo) {
  RunRecord record;
  record.has_record = true;
  record.status = RunStatus::failed;
  record.error = "out of memory\nmore";
  record.step = 1000;
  record.skipped_steps = 25;
  record.time_split = {{"data", 30}, {"forward", 60}, {"validation", 10}};
  AllSeries series;
  series["train_loss"] = series_of(100, [](int64_t k) { return 2 - 0.016 * static_cast<double>(k); });
  series["val_loss"] = series_of(10, [](int64_t k) { return 1 + 0.1 * std::abs(static_cast<double>(k) - 3); });
  for (auto& step : series["val_loss"].steps) step *= 10;
  series["grad_norm"] = series_of(100, [](int64_t k) { return k == 50 ? 400.0 : 1.0; });
  const std::vector<HealthFinding> found = run_health(record, series);
  EXPECT_EQ(found[0].level, HealthLevel::bad);
  EXPECT_EQ(finding(found, "End")->text, "The run failed at step 1,000: out of memory");
  EXPECT_EQ(finding(found, "Training loss")->level, HealthLevel::good);
  EXPECT_TRUE(
      test::holds(finding(found, "Training loss")->text, {"train_loss is falling: from 1.928 to 0.488 (−75 %)."}));
  EXPECT_TRUE(
      test::holds(finding(found, "Overfitting")->text, {"val_loss was lowest (1) at step 300 and is 1.6 (+60 %) at the "
                                                        "end, while train_loss fell from 1.552 to 0.488."}));
  EXPECT_TRUE(test::holds(finding(found, "Overfitting")->remedy, {"Use the checkpoint of that step"}));
  EXPECT_EQ(finding(found, "Skipped steps")->text, "25 of 1,000 steps were skipped (2.5 %).");
  EXPECT_EQ(finding(found, "Skipped steps")->level, HealthLevel::watch);
  EXPECT_EQ(finding(found, "Waiting for data")->text, "30 % of the time (30.0 s) was spent waiting for data.");
  EXPECT_EQ(finding(found, "Waiting for data")->level, HealthLevel::bad);
  EXPECT_TRUE(test::holds(finding(found, "Gradient norm")->text,
                          {"grad_norm is 1 in the middle and at most 400, 400 times as much."}));
}

TEST(RunHealth, OfAHealthyRunIsGood) {
  RunRecord record;
  record.has_record = true;
  record.status = RunStatus::success;
  record.step = 1000;
  record.time_split = {{"data", 1}, {"forward", 99}};
  AllSeries series;
  series["train_loss"] = series_of(100, [](int64_t k) { return 2 - 0.015 * static_cast<double>(k); });
  series["val_loss"] = series_of(10, [](int64_t k) { return 2 - 0.1 * static_cast<double>(k); });
  const auto found = run_health(record, series);
  EXPECT_EQ(found.size(), 4U);
  for (const auto& each : found) EXPECT_EQ(each.level, HealthLevel::good) << each.text;
}

TEST(HtmlText, EscapesWhatIsNotPlain) {
  EXPECT_EQ(html_text("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
  EXPECT_EQ(html_text("a\x01\xff\u202e"), "a\\x01\\xff\\u202e");
  EXPECT_EQ(script_text("</script><script>\"\\\n\u2028&"),
            "\"\\u003c/script\\u003e\\u003cscript\\u003e\\\"\\\\\\n\\u2028\\u0026\"");
  EXPECT_EQ(script_text(std::nan("")), "null");
  EXPECT_EQ(grouped_number(-1234567), "-1,234,567");
  EXPECT_EQ(grouped_number(123), "123");
}

TEST(ReportPage, HoldsNoMarkupOfItsRuns) {
  const test::TemporaryFolder folder;
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
  folder.write("hparams.yaml", "name: \"" + evil + "\"\n\"key'><b>\": 'a\"b'\n");
  folder.write("metrics.csv", "step,\"" + evil + "\"\n0,1\n1,2\n2,3\n");
  folder.write("run.json", R"({"status": "failed", "error": "<b>&</script>", "argv": ["<i>"], "host": "<u>",
    "metrics": {"<s>": {"last": 1}}, "monitor": {"name": "<s>"}, "time_split": {"<q>": 3, "data": 2},
    "checkpoints": [{"path": "<em>"}], "ranks": [{"host": "<a>", "memory_bytes": 1}],
    "sessions": [{"started": 1, "status": "<h1>"}, {"started": 2, "status": "<h1>"}]})");
  const std::string page = report_page(collect_report({folder.path()}));
  for (const char* markup :
       {"<script>alert", "<img", "<b>&", "<i>", "<u>", "<s>", "<q>", "<em>", "<a>", "<h1></", "'><b>"}) {
    EXPECT_EQ(page.find(markup), std::string::npos) << markup;
  }
  size_t scripts = 0;
  for (size_t at = page.find("</script"); at != std::string::npos; at = page.find("</script", at + 1)) ++scripts;
  EXPECT_EQ(scripts, 2U);
  EXPECT_TRUE(test::holds(page, {"&lt;b&gt;&amp;&lt;/script&gt;", "&lt;em&gt;"}));
}

TEST(ReportPage, ReportsWhyARunEnded) {
  const test::TemporaryFolder folder;
  folder.write("hparams.yaml", "lr: 1\n");
  folder.write("metrics.csv", "step,loss\n0,3\n1,2\n");
  folder.write("run.json", R"({"status": "success", "stop_reason": "val_loss < 0.1 & falling"})");
  EXPECT_TRUE(
      test::holds(report_page(collect_report({folder.path()})), {"Stop reason", "val_loss &lt; 0.1 &amp; falling"}));
}

TEST(ReportPage, GroupsTrainingAndValidationOfOneRun) {
  const test::TemporaryFolder folder;
  folder.write("hparams.yaml", "lr: 1\n");
  folder.write("metrics.csv", "step,train_loss,val_loss,val_acc,test_acc\n0,3,,,\n1,2,2.5,0.1,\n2,1,2,0.2,0.9\n");
  const ReportData one = collect_report({folder.path()});
  ASSERT_EQ(one.charts.size(), 2U);
  EXPECT_EQ(one.charts[0].title, "loss");
  EXPECT_EQ(one.charts[0].series.size(), 2U);
  EXPECT_EQ(one.charts[1].title, "val_acc");  // test_acc has one value
  const test::TemporaryFolder other;
  other.write("hparams.yaml", "lr: 2\n");
  other.write("metrics.csv", "step,train_loss\n0,3\n1,2\n");
  const ReportData two = collect_report({folder.path(), other.path()});
  ASSERT_EQ(two.charts.size(), 3U);
  EXPECT_EQ(two.charts[0].title, "train_loss");
  EXPECT_EQ(two.charts[0].series.size(), 2U);
  EXPECT_EQ(two.keys.size(), 2U);
}

TEST(ReportPage, StaysSmallForAnyLog) {
  const test::TemporaryFolder folder;
  folder.write("hparams.yaml", "lr: 1\n");
  std::string text = "step";
  for (int k = 0; k < 40; ++k) text += ",metric_" + std::to_string(k);
  text += "\n";
  for (int step = 0; step < 6000; ++step) {
    text += std::to_string(step);
    for (int k = 0; k < 40; ++k) text += "," + std::to_string(std::sin(0.01 * step * (k + 1)));
    text += "\n";
  }
  folder.write("metrics.csv", text);
  const std::string page = report_page(collect_report({folder.path()}));
  EXPECT_LT(page.size(), 6'000'000U);
  EXPECT_GT(page.size(), 500'000U);
}

}  // namespace
}  // namespace levin::report_parts_test
