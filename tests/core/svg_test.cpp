#include "levin/core/files/svg.h"

#include <gtest/gtest.h>

#include <string>

#include "support/error_text.h"

namespace levin::svg_test {

namespace {

using test::has;
}  // namespace

TEST(Svg, AChartIsOneElementWithItsShapesInOrder) {
  Svg svg(200, 100);
  svg.line({0, 1}, {10, 20.25}, {.colour = "#111111", .width = 1.5, .dashed = true});
  svg.curve({{1, 2}, {3.5, 4}}, {.colour = Svg::kColours[0]});
  svg.dot({5, 6}, 4, "#222222");
  const std::string text = svg.str();
  EXPECT_EQ(text.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"100\"", 0), 0U);
  EXPECT_TRUE(has(text,
                  "<line x1=\"0.0\" y1=\"1.0\" x2=\"10.0\" y2=\"20.2\" stroke=\"#111111\" "
                  "stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>\n<polyline"))
      << text;
  EXPECT_TRUE(has(text, "points=\"1.0,2.0 3.5,4.0 \" stroke=\"#0072b2\" stroke-width=\"1\"/>\n<circle")) << text;
  EXPECT_TRUE(text.ends_with("</svg>\n"));
}

TEST(Svg, StringsOfAnyLengthAreEscapedAndRotatedOnDemand) {
  Svg svg(10, 10);
  svg.text({1, 2}, "a < b && c > d" + std::string(2000, 'x'), {.anchor = Svg::Anchor::end, .bold = true});
  svg.text({3, 4}, "memory", {.upwards = true});
  EXPECT_TRUE(has(svg.str(),
                  "<text x=\"1.0\" y=\"2.0\" text-anchor=\"end\" font-size=\"12\" font-weight=\"bold\" "
                  "fill=\"#222222\">a &lt; b &amp;&amp; c &gt; d" +
                      std::string(2000, 'x') + "</text>"))
      << svg.str();
  EXPECT_TRUE(has(svg.str(), "translate(3.0 4.0) rotate(-90)")) << svg.str();
}

TEST(Svg, StepsOfAnAxisAreRoundNumbers) {
  EXPECT_DOUBLE_EQ(tick_step(10, 5), 2);
  EXPECT_DOUBLE_EQ(tick_step(11, 5), 5);
  EXPECT_DOUBLE_EQ(tick_step(1, 5), 0.2);
  EXPECT_DOUBLE_EQ(tick_step(0.3, 6), 0.05);
  EXPECT_DOUBLE_EQ(tick_step(4096, 6), 1000);
}

}  // namespace levin::svg_test
