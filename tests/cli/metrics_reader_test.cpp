// metrics.csv and metrics.jsonl, also while they are written.
#include "levin/cli/runs/metrics_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/temporary_folder.h"

namespace levin::metrics_reader_test {
namespace {

class Metrics : public ::testing::Test {
 protected:
  void append(const std::string& text, const std::string& name = "metrics.csv") const {
    std::ofstream(folder_ / name, std::ios::binary | std::ios::app) << text;
  }
  const MetricSeries& of(const std::string& name) const { return reader_.series().at(name); }

  test::TemporaryFolder folder_;
  MetricsReader reader_{folder_.path()};
};

TEST_F(Metrics, ANewRunHasNone) {
  EXPECT_FALSE(reader_.update());
  EXPECT_TRUE(reader_.series().empty());
}

TEST_F(Metrics, EmptyCellsAreNotValues) {
  append("epoch,step,train_loss,val_loss\n0,9,0.5,\n0,19,0.25,\n0,19,,0.75\n");
  EXPECT_TRUE(reader_.update());
  EXPECT_EQ(of("train_loss").steps, (std::vector<int64_t>{9, 19}));
  EXPECT_EQ(of("train_loss").values, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(of("val_loss").steps, (std::vector<int64_t>{19}));
  EXPECT_EQ(reader_.series().size(), 2U);  // without epoch and step
  EXPECT_FALSE(reader_.update());
}

TEST_F(Metrics, AnIncompleteLineWaitsForItsEnd) {
  append("step,loss\n0,1.5\n1,0.2");
  EXPECT_TRUE(reader_.update());
  EXPECT_EQ(of("loss").values, (std::vector<double>{1.5}));
  EXPECT_FALSE(reader_.update());
  append("5\n");
  EXPECT_TRUE(reader_.update());
  EXPECT_EQ(of("loss").values, (std::vector<double>{1.5, 0.25}));
}

TEST_F(Metrics, AnIncompleteHeaderWaitsToo) {
  append("step,lo");
  EXPECT_FALSE(reader_.update());
  append("ss\n3,4\n");
  EXPECT_TRUE(reader_.update());
  EXPECT_EQ(of("loss").values, (std::vector<double>{4}));
}

TEST_F(Metrics, AFileThatWasCutAndHasGrownAgainIsReadAnew) {
  append("step,loss\n0,1.5\n1,0.5\n");
  EXPECT_TRUE(reader_.update());
  std::filesystem::resize_file(folder_ / "metrics.csv", 16);  // the first row
  append("1,9\n2,8\n3,7\n");
  EXPECT_TRUE(reader_.update());
  EXPECT_EQ(of("loss").values, (std::vector<double>{1.5, 9, 8, 7}));
}

TEST_F(Metrics, LinesThatAreNoneAreCounted) {
  append("step,loss\nx,1\n1,abc\n,5\n2,3,4,5\n3\r\n4,6\r\n\n");
  reader_.update();
  EXPECT_EQ(of("loss").values, (std::vector<double>{3, 6}));
  EXPECT_EQ(reader_.bad_lines(), 3);
}

TEST_F(Metrics, JsonLinesAreReadWhereThereIsNoTable) {
  append(R"({"time": 100.5, "step": 4, "epoch": 0, "metrics": {"loss": 0.5, "bad": "nan", "none": null}}
not json
{"time": 101.5, "step": 9, "epoch": 0, "metrics": {"loss": 0.25, "text": "x"}}
{"time": 102, "st)",
         "metrics.jsonl");
  EXPECT_TRUE(reader_.update());
  EXPECT_EQ(of("loss").steps, (std::vector<int64_t>{4, 9}));
  EXPECT_EQ(of("loss").values, (std::vector<double>{0.5, 0.25}));
  EXPECT_TRUE(std::isnan(of("bad").values.at(0)));
  EXPECT_FALSE(reader_.series().contains("text"));
  EXPECT_EQ(reader_.times(), (std::vector<std::pair<int64_t, double>>{{4, 100.5}, {9, 101.5}}));
  EXPECT_EQ(reader_.bad_lines(), 1);
}

TEST_F(Metrics, TimesOfLongRunsAreThinned) {
  std::string text;
  for (int step = 0; step < 5000; ++step) {
    text += "{\"time\":" + std::to_string(step) + ",\"step\":" + std::to_string(step) + ",\"metrics\":{\"a\":1}}\n";
  }
  append(text, "metrics.jsonl");
  reader_.update();
  EXPECT_EQ(of("a").values.size(), 5000U);
  EXPECT_LT(reader_.times().size(), 1000U);
  EXPECT_GT(reader_.times().size(), 400U);
  EXPECT_EQ(reader_.times().front(), (std::pair<int64_t, double>{0, 0}));
  for (const auto& [step, time] : reader_.times()) EXPECT_EQ(static_cast<double>(step), time);
}

TEST_F(Metrics, LongFilesAreReadInPieces) {
  std::string text = "step,loss\n";
  for (int step = 0; step < 700'000; ++step) text += std::to_string(step) + "," + std::to_string(step) + ".25\n";
  ASSERT_GT(text.size(), 9'000'000U);  // more than two pieces
  append(text);
  reader_.update();
  ASSERT_EQ(of("loss").values.size(), 700'000U);
  for (size_t k = 0; k < 700'000; k += 997) EXPECT_EQ(of("loss").values[k], static_cast<double>(k) + 0.25);
  EXPECT_EQ(reader_.bad_lines(), 0);
}

}  // namespace
}  // namespace levin::metrics_reader_test
