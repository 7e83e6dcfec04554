#include <gtest/gtest.h>

#include <cmath>

#include "levin/loggers/flat_options.h"
#include "levin/loggers/prometheus_logger.h"

namespace levin::prometheus_text_test {
namespace {

TEST(PrometheusText, EscapesAsTheExpositionFormatDemands) {
  const PrometheusGauge gauge{"levin_metric", "A \\ and\na line.", {{{{"name", "a\"b\\c\nd"}}, 0.5}}};
  EXPECT_EQ(prometheus_text({gauge}),
            "# HELP levin_metric A \\\\ and\\na line.\n# TYPE levin_metric "
            "gauge\nlevin_metric{name=\"a\\\"b\\\\c\\nd\"} 0.5\n");
}

TEST(PrometheusText, SpellsNumbersThatAreNotFiniteAndReplacesInvalidBytes) {
  const PrometheusGauge gauge{"g", "h", {{{}, std::nan("")}, {{}, INFINITY}, {{{"l", "\xff\xc3\xa9"}}, -INFINITY}}};
  EXPECT_EQ(prometheus_text({gauge}), "# HELP g h\n# TYPE g gauge\ng NaN\ng +Inf\ng{l=\"?\xc3\xa9\"} -Inf\n");
}

TEST(PrometheusText, LeavesOutGaugesWithoutSamples) {
  EXPECT_EQ(prometheus_text({{"g", "h", {}}}), "");
}

TEST(FlatOptions, NameEveryValueByItsPath) {
  ConfigNode model = ConfigNode::map();
  model.set("layers", ConfigNode::list({ConfigNode::scalar("64"), ConfigNode::scalar("32")}));
  model.set("none", ConfigNode());
  model.set("empty", ConfigNode::list());
  ConfigNode options = ConfigNode::map();
  options.set("lr", ConfigNode::scalar("0.1"));
  options.set("model", model);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"lr", "0.1"}, {"model.layers.0", "64"}, {"model.layers.1", "32"}, {"model.none", "null"}, {"model.empty", "[]"}};
  EXPECT_EQ(flat_options(options), expected);
}

}  // namespace
}  // namespace levin::prometheus_text_test
