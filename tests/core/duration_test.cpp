#include <gtest/gtest.h>

#include <cmath>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin::duration_test {
namespace {

TEST(ParseDuration, ReadsClockForm) {
  EXPECT_EQ(parse_duration("00:12:00:00").count(), 12 * 3600);
  EXPECT_EQ(parse_duration("1:02:03:04").count(), 86400 + 2 * 3600 + 3 * 60 + 4);
  EXPECT_EQ(parse_duration("00:00:90:00").count(), 90 * 60);
}

TEST(ParseDuration, ReadsNumbersWithUnits) {
  EXPECT_EQ(parse_duration("12h").count(), 12 * 3600);
  EXPECT_EQ(parse_duration("90min").count(), 5400);
  EXPECT_EQ(parse_duration("1h30m").count(), 5400);
  EXPECT_EQ(parse_duration("1d 2h 3min 4s").count(), 86400 + 7200 + 180 + 4);
  EXPECT_EQ(parse_duration("1.5s").count(), 1.5);
  EXPECT_DOUBLE_EQ(parse_duration("250ms").count(), 0.25);
  EXPECT_EQ(parse_duration("0s").count(), 0);
}

TEST(ParseDuration, ShowsTheTextAndBothFormsIfItIsNeither) {
  for (const std::string bad : {"",          " ",
                                "5",         "h",
                                "5 parsecs", "-5s",
                                "1h-30m",    "1:2:3",
                                "1:2:3:4:5", "a:b:c:d",
                                "::: ",      ":::",
                                "1:-2:3:4",  "+1:2:3:4",
                                "1:2:3:4 ",  "99999999999999999999:0:0:0",
                                "0x10s",     "infs",
                                "nans",      "nan",
                                "1e999s",    "9999999999999d",
                                "1h,"}) {
    try {
      (void)parse_duration(bad);
      ADD_FAILURE() << "\"" << bad << "\" was taken";
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.find("\"" + bad + "\" is not a duration"), 0u) << what;
      EXPECT_NE(what.find("00:12:00:00"), std::string::npos);
      EXPECT_NE(what.find("90min"), std::string::npos);
    }
  }
}

TEST(DurationText, ReadsBack) {
  EXPECT_EQ(duration_text(Seconds(0)), "00:00:00:00");
  EXPECT_EQ(duration_text(Seconds(86400 + 2 * 3600 + 3 * 60 + 4)), "01:02:03:04");
  for (const double seconds : {59.0, 60.0, 3599.0, 86399.0, 86400.0, 1e9}) {
    EXPECT_EQ(parse_duration(duration_text(Seconds(seconds))).count(), seconds);
  }
}

TEST(ReadableDuration, HasTwoUnitsAtMost) {
  EXPECT_EQ(readable_duration(Seconds(0.0042)), "4 ms");
  EXPECT_EQ(readable_duration(Seconds(0.9999)), "1.0 s");
  EXPECT_EQ(readable_duration(Seconds(4.2)), "4.2 s");
  EXPECT_EQ(readable_duration(Seconds(59.97)), "1 min 00 s");
  EXPECT_EQ(readable_duration(Seconds(187)), "3 min 07 s");
  EXPECT_EQ(readable_duration(Seconds(3599.7)), "1 h 00 min");
  EXPECT_EQ(readable_duration(Seconds(3720)), "1 h 02 min");
  EXPECT_EQ(readable_duration(Seconds(90000)), "1 d 01 h");
  EXPECT_EQ(readable_duration(Seconds(1e300)), "1.16e+295 d");
  EXPECT_EQ(readable_duration(Seconds(INFINITY)), "inf d");
}

TEST(DurationValue, WritesWhatReadsBackToTheSame) {
  for (const double seconds : {0.0, 0.25, 1.0 / 3, 1.5, 3600.0, 1e-9, 1e10, 123456.789}) {
    const ConfigNode node = ValueType<Seconds>::write(Seconds(seconds));
    Seconds back(-1);
    Problems problems;
    ASSERT_TRUE(ValueType<Seconds>::read(node, back, "x", problems)) << node.text;
    EXPECT_EQ(back.count(), seconds) << node.text;
  }
  EXPECT_EQ(ValueType<Seconds>::write(Seconds(43200)).text, "00:12:00:00");
}

TEST(DurationValue, ProblemsSayWhereAndWhat) {
  Seconds value{};
  Problems problems;
  ConfigNode node = ConfigNode::scalar("soon");
  node.mark = {"run.yaml", 2, 5};
  EXPECT_FALSE(ValueType<Seconds>::read(node, value, "max_time", problems));
  EXPECT_FALSE(ValueType<Seconds>::read(ConfigNode::list(), value, "max_time", problems));
  EXPECT_EQ(problems.lines()[0].find("run.yaml:2:5: max_time: \"soon\" is not a duration"), 0u) << problems.lines()[0];
  EXPECT_EQ(problems.lines()[1], "max_time: expected a duration such as \"00:12:00:00\" or \"90min\", got a list.");
}

}  // namespace
}  // namespace levin::duration_test
