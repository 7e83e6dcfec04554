// The newest values of a run, merged from rows when they are read.
#include "levin/trainer/run/logged_metrics.h"

#include <gtest/gtest.h>

namespace levin::logged_metrics_test {
namespace {

MetricRow row(const std::shared_ptr<const std::vector<std::string>>& names, std::vector<double> values) {
  return {names, std::move(values)};
}

std::shared_ptr<const std::vector<std::string>> names(std::vector<std::string> list) {
  return std::make_shared<const std::vector<std::string>>(std::move(list));
}

TEST(LoggedMetrics, AreTheNewestOfEachName) {
  LoggedMetrics metrics(Metrics{{"old", 1}, {"a", 2}});
  const auto ab = names({"a", "b"});
  metrics.set(row(ab, {3, 4}));
  metrics.set(row(ab, {5, 6}));
  metrics.set(row(names({"b", "c"}), {7, 8}));
  metrics.set("c", 9);
  EXPECT_EQ(metrics.values(), (Metrics{{"old", 1}, {"a", 5}, {"b", 7}, {"c", 9}}));
  metrics.set(row(ab, {10, 11}));
  EXPECT_EQ(metrics.values(), (Metrics{{"old", 1}, {"a", 10}, {"b", 11}, {"c", 9}}));
}

TEST(LoggedMetrics, ACopyKeepsWhatWasNotReadYet) {
  LoggedMetrics metrics;
  metrics.set(row(names({"a"}), {1}));
  LoggedMetrics copy = metrics;
  metrics.set("a", 2);
  EXPECT_EQ(copy.values().at("a"), 1);
  EXPECT_EQ(metrics.values().at("a"), 2);
}

}  // namespace
}  // namespace levin::logged_metrics_test
