#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin::period_test {
namespace {

TEST(Period, HasAUnit) {
  EXPECT_EQ(Period("500ba").unit(), PeriodUnit::batches);
  EXPECT_EQ(Period("500ba").amount(), 500);
  EXPECT_EQ(Period("10ep").unit(), PeriodUnit::epochs);
  EXPECT_EQ(Period("10ep").whole_epochs(), 10);
  EXPECT_EQ(Period("0.5ep").whole_epochs(), 0);
  EXPECT_EQ(Period("0.1dur").unit(), PeriodUnit::run);
  EXPECT_EQ(Period("30min").unit(), PeriodUnit::time);
  EXPECT_EQ(Period("30min").amount(), 1800);
  EXPECT_EQ(Period("00:00:30:00"), Period("30min"));
  EXPECT_EQ(Period(std::chrono::minutes(30)), Period("30min"));
}

TEST(Period, ReadsBackFromItsText) {
  for (const char* text : {"500ba", "2ep", "0.25ep", "0.1dur", "30min", "1.5s", "250ms"}) {
    const Period period(text);
    EXPECT_EQ(Period(period.text()), period) << text << " became " << period.text();
  }
  EXPECT_EQ(Period("0.10dur").text(), "0.1dur");
}

TEST(Period, EndsWhereAMultipleOfItIsReached) {
  const Period tenth("0.1dur");
  int ends = 0;
  for (int step = 1; step <= 30; ++step) ends += tenth.ends_between((step - 1) / 30.0, step / 30.0) ? 1 : 0;
  EXPECT_EQ(ends, 10);
  EXPECT_TRUE(tenth.ends_between(0.9, 1.0));
  EXPECT_FALSE(Period("500ba").ends_between(500, 999));
  EXPECT_TRUE(Period("500ba").ends_between(999, 1000));
}

std::string error_of(const std::string& text) {
  try {
    (void)Period(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(Period, ShowsATextThatIsNone) {
  for (const std::string text : {"", "ba", "5", "5 parsecs", "ep", "1e3ba", "five ba", "nanep", "infdur"}) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find("\"" + text + "\""), std::string::npos) << error;
    EXPECT_NE(error.find("500ba"), std::string::npos) << error;
  }
}

TEST(Period, RefusesAmountsThatNoRunCanCount) {
  EXPECT_NE(error_of("0ba").find("\"0ba\": a period is above 0"), std::string::npos) << error_of("0ba");
  EXPECT_NE(error_of("-2ep").find("above 0"), std::string::npos) << error_of("-2ep");
  EXPECT_NE(error_of("0s").find("above 0"), std::string::npos) << error_of("0s");
  EXPECT_NE(error_of("1.5ba").find("0.5ep"), std::string::npos) << error_of("1.5ba");
  EXPECT_NE(error_of("1.5ep").find("whole number"), std::string::npos) << error_of("1.5ep");
  EXPECT_NE(error_of("2dur").find("at most 1"), std::string::npos) << error_of("2dur");
  EXPECT_THROW((void)Period(Seconds(-1)), ConfigError);
}

}  // namespace
}  // namespace levin::period_test
