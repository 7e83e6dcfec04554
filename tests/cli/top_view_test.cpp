// What levin top shows of a run, as text.
#include "levin/cli/commands/top_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error_text.h"

namespace levin::top_view_test {
namespace {

using test::has;

// The dots of a plot as rows of '#' and ' ', four rows and two columns to a character.
std::vector<std::string> dots_of(const BraillePlot& plot) {
  std::vector<std::string> dots;
  for (const auto& row : plot.rows) {
    std::vector<std::string> four(4);
    for (size_t at = 0; at + 2 < row.size(); at += 3) {
      const unsigned code =
          (static_cast<unsigned char>(row[at + 1]) & 0x3f) << 6 | (static_cast<unsigned char>(row[at + 2]) & 0x3f);
      const unsigned bits = code & 0xff;
      for (int y = 0; y < 4; ++y) {
        const unsigned left = y < 3 ? 1U << y : 0x40;
        const unsigned right = y < 3 ? 8U << y : 0x80;
        four[static_cast<size_t>(y)] += (bits & left) != 0 ? '#' : ' ';
        four[static_cast<size_t>(y)] += (bits & right) != 0 ? '#' : ' ';
      }
    }
    dots.insert(dots.end(), four.begin(), four.end());
  }
  return dots;
}

TEST(BraillePlotTest, DrawsADiagonalFromBottomLeftToTopRight) {
  const BraillePlot plot = braille_plot({0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, 4, 2);
  const std::vector<std::string> expected{"       #", "      # ", "     #  ", "    #   ",
                                          "   #    ", "  #     ", " #      ", "#       "};
  EXPECT_EQ(dots_of(plot), expected);
  EXPECT_EQ(plot.low, 0);
  EXPECT_EQ(plot.high, 7);
  EXPECT_EQ(plot.first, 0);
  EXPECT_EQ(plot.last, 7);
}

TEST(BraillePlotTest, ConnectsPointsThatAreFarApart) {
  const auto dots = dots_of(braille_plot({0, 7}, {0, 7}, 4, 2));
  for (size_t x = 0; x < 8; ++x) EXPECT_EQ(dots[7 - x][x], '#') << x;
}

TEST(BraillePlotTest, KeepsAPeakAmongManyValuesOfOneColumn) {
  std::vector<int64_t> steps;
  std::vector<double> values;
  for (int64_t k = 0; k < 10000; ++k) {
    steps.push_back(k);
    values.push_back(k == 5001 ? 100 : 1);
  }
  const auto dots = dots_of(braille_plot(steps, values, 10, 2));
  EXPECT_EQ(std::count(dots[0].begin(), dots[0].end(), '#'), 1);
  EXPECT_EQ(std::count(dots[7].begin(), dots[7].end(), '#'), 20);
}

TEST(BraillePlotTest, ValuesThatAreNotFiniteLeaveAGap) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto dots = dots_of(braille_plot({0, 1, 2, 3, 4, 5, 6, 7}, {1, 1, nan, nan, nan, nan, 1, 2}, 4, 1));
  EXPECT_EQ(dots[3], "##    # ");
  EXPECT_EQ(braille_plot({0, 1}, {nan, nan}, 4, 2).rows, std::vector<std::string>{});
  EXPECT_EQ(braille_plot({}, {}, 4, 2).rows, std::vector<std::string>{});
  EXPECT_EQ(braille_plot({1}, {1}, 0, 2).rows, std::vector<std::string>{});
}

TEST(BraillePlotTest, DrawsAConstantAndHugeValues) {
  const auto flat = dots_of(braille_plot({0, 1}, {3, 3}, 2, 1));
  EXPECT_EQ(std::count_if(flat.begin(), flat.end(), [](const auto& row) { return row == "####"; }), 1);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(braille_plot({0, 1}, {-most, most}, 2, 1).rows.size(), 1u);
}

RunRecord running_record() {
  RunRecord run;
  run.folder = run.name = "levin_logs/version_3";
  run.command = "fit";
  run.status = RunStatus::running;
  run.started = 1000;
  run.updated = 1100;
  run.strategy = "ddp";
  run.world_size = 2;
  run.device = "cpu";
  run.precision = "32-true";
  run.epoch = 3;
  run.max_epochs = 10;
  run.step = 1200;
  run.progress = 0.31;
  run.remaining_seconds = 95;
  run.batches_per_second = 81;
  run.samples_per_second = 5184;
  run.time_split = {{"data", 10}, {"step", 85}, {"validation", 5}};
  for (int64_t k = 0; k < 2; ++k)
    run.ranks.push_back({k, "node1", 100 + k, 512.0 * (1 << 20), 3.0 * (1 << 30), "training"});
  return run;
}

std::map<std::string, MetricSeries> some_series() {
  return {{"lr-Adam", {{0, 10}, {0.1, 0.2}}},
          {"train_loss", {{0, 10}, {2.5, 0.5}}},
          {"val_acc", {{10}, {0.75}}},
          {"val_loss", {{10}, {0.625}}}};
}

std::vector<std::string> text_of(const std::vector<TopLine>& lines) {
  std::vector<std::string> text;
  for (const auto& line : lines) {
    text.emplace_back();
    for (const auto& piece : line) text.back() += piece.text;
  }
  return text;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const auto& line : lines) all += line + "\n";
  return all;
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string view(const RunRecord& run, int columns, int rows) {
  const auto series = some_series();
  TopCurves curves;
  choose_curves(curves, metrics_in_order(series), curves_for(columns));
  return joined(text_of(top_view(run, series, curves, columns, rows, 1187, "")));
}

TEST(TopView, ShowsTheStateOfARun) {
  const std::string text = view(running_record(), 80, 24);
  for (const char* part : {"levin_logs/version_3  fit  running  3 min 07 s  ddp, 2 ranks, cpu, 32-true",
                           "epoch 3 of 10  step 1200", "31 %  1 min 35 s left", "81 batches/s  5,184 samples/s",
                           "█ step 85 %", "▓ data 10 %", "▒ validation 5 %", "▸train_loss 0.5", " val_loss 0.625",
                           "0    node1  100      training  512.0 MiB  3.0 GiB", "1    node1  101", "q quits"})
    EXPECT_TRUE(has(text, part)) << part << " is not in\n" << text;
}

TEST(TopView, FitsEveryTerminal) {
  RunRecord run = running_record();
  run.error = "an error that is longer than any of these terminals is wide: " + std::string(300, 'x');
  for (int64_t k = 2; k < 500; ++k)
    run.ranks.push_back({k, "a_host_with_a_long_name_" + std::to_string(k), k, 1e9, 2e9, "training"});
  const auto series = some_series();
  for (const int columns : {1, 5, 20, 50, 80, 119, 120, 300}) {
    for (const int rows : {1, 2, 5, 12, 24, 40, 100}) {
      TopCurves curves;
      choose_curves(curves, metrics_in_order(series), curves_for(columns));
      const auto lines = text_of(top_view(run, series, curves, columns, rows, 1200, "a note"));
      EXPECT_EQ(static_cast<int>(lines.size()), rows) << columns << " by " << rows;
      for (const auto& line : lines)
        EXPECT_LE(static_cast<int>(characters(line)), columns) << columns << " by " << rows;
    }
  }
}

TEST(TopView, LeavesOutRanksThatDoNotFitAndCountsThem) {
  RunRecord run = running_record();
  for (int64_t k = 2; k < 64; ++k) run.ranks.push_back({k, "node1", k, 1e9, 2e9, "training"});
  const std::string text = view(run, 80, 24);
  EXPECT_TRUE(has(text, "more ranks")) << text;
  EXPECT_TRUE(has(text, "train_loss")) << text;
}

TEST(TopView, DrawsMoreImportantMetricsOnceTheyAreThereUnlessTheUserHasChosen) {
  TopCurves curves;
  choose_curves(curves, {"train_loss", "lr-Adam"}, 2);
  EXPECT_EQ(curves.names, (std::vector<std::string>{"train_loss", "lr-Adam"}));
  choose_curves(curves, {"train_loss", "val_loss", "lr-Adam"}, 2);
  EXPECT_EQ(curves.names, (std::vector<std::string>{"train_loss", "val_loss"}));
  curves = {.names = {"lr-Adam", "train_loss"}, .chosen = 1, .are_of_user = true};
  choose_curves(curves, {"train_loss", "val_loss", "lr-Adam"}, 3);
  EXPECT_EQ(curves.names, (std::vector<std::string>{"lr-Adam", "train_loss", "val_loss"}));
  EXPECT_EQ(curves.chosen, 1);
}

TEST(TopView, OffersLossesFirst) {
  EXPECT_EQ(metrics_in_order(some_series()),
            (std::vector<std::string>{"train_loss", "val_loss", "val_acc", "lr-Adam"}));
}

TEST(TopView, ReportsWhenNothingWasWrittenAndWhyARunEnded) {
  RunRecord run = running_record();
  EXPECT_TRUE(has(joined(text_of(top_view(run, {}, {}, 80, 24, 1200, ""))), "No metric was written yet."));
  run.status = RunStatus::failed;
  run.error = "out of\nmemory \x1b[31m";
  EXPECT_EQ(end_text(run), "failed after 1 min 40 s: out of memory \\x1b[31m");
  EXPECT_TRUE(has(view(run, 80, 24), "out of memory \\x1b[31m"));
}

TEST(TopView, APlainLineHasWhatALogNeeds) {
  const std::string line = plain_line(running_record(), some_series(), 1187);
  EXPECT_EQ(
      line.substr(8),
      " running, epoch 3 of 10, step 1200, 31 %, train_loss 0.5, val_loss 0.625, val_acc 0.75, 81 batches/s, 1 min 35 "
      "s left");
}

TEST(TopView, AnEmptyRecordIsNoProblem) {
  const RunRecord run;
  EXPECT_FALSE(plain_line(run, {}, 0).empty());
  EXPECT_EQ(top_view(run, {}, {}, 80, 24, 0, "").size(), 24u);
}

}  // namespace
}  // namespace levin::top_view_test
