#include "levin/core/options/error.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"

namespace levin::error_test {
namespace {

TEST(ConfigError, HoldsOneLinePerProblem) {
  const ConfigError error(std::vector<std::string>{"a: bad.", "b: worse."});
  EXPECT_STREQ(error.what(), "a: bad.\nb: worse.");
  EXPECT_EQ(error.problems(), (std::vector<std::string>{"a: bad.", "b: worse."}));
  const ConfigError one("a: bad.");
  EXPECT_STREQ(one.what(), "a: bad.");
  EXPECT_EQ(one.problems(), std::vector<std::string>{"a: bad."});
}

TEST(Interrupted, NamesTheSignal) {
  const Interrupted error(SIGTERM);
  EXPECT_EQ(error.signal_number(), SIGTERM);
  EXPECT_STREQ(error.what(), "interrupted by SIGTERM");
}

TEST(ExceptionText, ReportsWhatAMapsBareTextMeans) {
  const std::map<std::string, double> metrics;
  try {
    (void)metrics.at("val_acc");
  } catch (const std::exception& error) {
    EXPECT_EQ(exception_text(error),
              "map::at: a map was asked for a key that it does not hold, e.g. for a metric that was not logged.");
  }
  EXPECT_EQ(exception_text(Error("a: bad.")), "a: bad.");
}

// main_guard and the messages of plugins, data and ranks print it.
TEST(ExceptionText, LeavesOutTheStackOfLibTorch) {
  try {
    TORCH_CHECK(false, "expected 2 features, got 3");
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("Exception raised from"), std::string::npos);
    EXPECT_EQ(exception_text(error), "expected 2 features, got 3");
    EXPECT_EQ(exception_text(std::current_exception()), "expected 2 features, got 3");
  }
}

TEST(MainGuard, PrintsOneLineForAnErrorOfLibTorch) {
  std::vector<std::string> lines;
  Console::instance().capture([&](const std::string& line) { lines.push_back(line); });
  const int status = main_guard([] { TORCH_CHECK(false, "expected 2 features, got 3"); });
  Console::instance().capture({});
  EXPECT_EQ(status, kExitRunFailed);
  EXPECT_EQ(lines, std::vector<std::string>{"error: expected 2 features, got 3"});
}

TEST(Join, PutsCommasBetweenAndSaysNone) {
  EXPECT_EQ(join({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join({}), "none");
  EXPECT_EQ(join({"a", "b", "c"}, 2), "a, b and 1 more");
  EXPECT_EQ(join({"a", "b", "c"}, 3), "a, b, c");
}

TEST(Split, GivesThePartsBetweenSeparators) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split("a,b,,c", ','), (Parts{"a", "b", "", "c"}));
  EXPECT_EQ(split("one\ntwo\n", '\n'), (Parts{"one", "two"}));
  EXPECT_EQ(split(",", ','), Parts{""});
  EXPECT_EQ(split("", ','), Parts{});
}

TEST(Trimmed, LeavesBlanksWithin) {
  EXPECT_EQ(trimmed(" \ta b\t"), "a b");
  EXPECT_EQ(trimmed(" "), "");
}

TEST(Formatted, FollowsPrintf) {
  EXPECT_EQ(formatted("%.1f %% of %s", 12.34, "all"), "12.3 % of all");
  EXPECT_EQ(formatted("%s", std::string(600, 'x').c_str()), std::string(511, 'x'));
}

TEST(CutText, StaysOnOneLineAndCutsLongText) {
  EXPECT_EQ(cut_text("plain é"), "plain é");
  EXPECT_EQ(cut_text("a\nb\x01\x7f"), "a\\nb\\x01\\x7f");
  EXPECT_EQ(cut_text(std::string(100, 'x'), 10), "xxxxxxxxxx… (100 bytes)");
  EXPECT_EQ(cut_text("aéb", 2), "a… (4 bytes)");
  EXPECT_EQ(cut_text("é", 2), "é");
  EXPECT_EQ(cut_text(""), "");
}

TEST(NearestName, FindsTyposSwapsAndCase) {
  const std::vector<std::string> known{"max_epochs", "min_epochs", "strategy", "ddp", "Timer"};
  EXPECT_EQ(nearest_name("max_epoch", known), "max_epochs");
  EXPECT_EQ(nearest_name("min_epoch", known), "min_epochs");
  EXPECT_EQ(nearest_name("stratgey", known), "strategy");
  EXPECT_EQ(nearest_name("dpp", known), "ddp");
  EXPECT_EQ(nearest_name("timer", known), "Timer");
  EXPECT_EQ(nearest_name("TIMER", known), "Timer");
}

TEST(NearestName, FindsTheRestOfALongerName) {
  EXPECT_EQ(nearest_name("accuracy", {"train_loss", "val_accuracy"}), "val_accuracy");
  EXPECT_EQ(nearest_name("epochs", {"max_epochs"}), "max_epochs");
  EXPECT_EQ(nearest_name("csv", {"MLFlowLogger", "CSVLogger"}), "CSVLogger");
}

TEST(NearestName, PrefersTheNearer) {
  EXPECT_EQ(nearest_name("val_los", {"val_lose_it", "val_loss", "val_lot"}), "val_loss");
}

TEST(NearestName, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("precision", {"strategy", "devices"}), "");
  EXPECT_EQ(nearest_name("x", {"y", "lr"}), "");
  EXPECT_EQ(nearest_name("", {"a"}), "");
  EXPECT_EQ(nearest_name("abc", {}), "");
}

TEST(NearestName, CostsLittleForAHugeName) {
  const std::string huge(5'000'000, 'x');  // a full table against each name would take gigabytes
  EXPECT_EQ(nearest_name(huge, std::vector<std::string>(50, "max_epochs")), "");
}

TEST(DidYouMean, IsASentenceOrNothing) {
  EXPECT_EQ(did_you_mean("trainr", {"trainer"}), " Did you mean \"trainer\"?");
  EXPECT_EQ(did_you_mean("zzz", {"trainer"}), "");
}

}  // namespace
}  // namespace levin::error_test
