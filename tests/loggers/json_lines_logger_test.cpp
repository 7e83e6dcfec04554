#include "levin/loggers/json_lines_logger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"

namespace levin::json_lines_logger_test {
namespace {

using test::CapturedConsole;
using test::TemporaryFolder;

std::unique_ptr<JSONLinesLogger> started(const TemporaryFolder& folder, double flush_secs = 0) {
  auto logger = std::make_unique<JSONLinesLogger>(
      JSONLinesLoggerOptions{.save_dir = folder.path(), .name = "", .version = "run", .flush_secs = flush_secs});
  logger->start("", false);
  logger->own_folder();
  return logger;
}

TEST(JSONLinesLogger, WritesARowAsOneObject) {
  const TemporaryFolder folder;
  const auto logger = started(folder);
  logger->log_metrics({{"loss", 0.1}, {"epoch", 2}, {"big", 1e300}}, {49, 1700000000.25});
  logger->log_metrics({{"a\"b\\\n", NAN}, {"i", INFINITY}, {"j", -INFINITY}}, {50, 1.5});
  EXPECT_EQ(
      read_file(logger->metrics_path()),
      "{\"time\":1700000000.25,\"step\":49,\"epoch\":2,\"metrics\":{\"loss\":0.1,\"big\":1e+300}}\n"
      "{\"time\":1.5,\"step\":50,\"metrics\":{\"a\\\"b\\\\\\n\":\"NaN\",\"i\":\"Infinity\",\"j\":\"-Infinity\"}}\n");
}

TEST(JSONLinesLogger, WritesEveryOtherKind) {
  const TemporaryFolder folder;
  const auto logger = started(folder);
  const LogPoint at(3, 1.5);
  ConfigNode inner = ConfigNode::map();
  inner.set("betas", ConfigNode::list({ConfigNode::scalar("0.9"), ConfigNode::scalar("x")}));
  inner.set("on", ConfigNode::scalar("true"));
  inner.set("id", ConfigNode::scalar("1", /*quoted=*/true));
  inner.set("none", ConfigNode());
  logger->log_hyperparams(inner);
  EXPECT_FALSE(std::filesystem::exists(logger->metrics_path())) << "a run without a value leaves no file";
  logger->log_text("t", "\xff\x01", at);
  logger->log_table("b", {{"c", "d"}, {{1.5, std::string("x")}, {2.0, std::string("y")}}}, at);
  logger->log_histogram("h", {1, 2, 3, 4, 5, 6, {1, 1.5, 2}, {1, 2}}, at);
  logger->log_artifact("a", "/x", at);
  logger->log_system({{"memory", 7}}, at);
  logger->log_final_metrics({{"loss", 0.5}}, at);
  const std::string text = read_file(logger->metrics_path());
  const size_t first = text.find('\n') + 1;
  EXPECT_NE(text.substr(0, first).find("\"hparams\":{\"betas\":[0.9,\"x\"],\"on\":true,\"id\":\"1\",\"none\":null}}\n"),
            std::string::npos)
      << text;
  const std::string place = "{\"time\":1.5,\"step\":3,";
  EXPECT_EQ(text.substr(first),
            place + "\"text\":{\"name\":\"t\",\"text\":\"\xef\xbf\xbd\\u0001\"}}\n" + place +
                "\"table\":{\"name\":\"b\",\"columns\":[\"c\",\"d\"],\"rows\":[[1.5,\"x\"],[2,\"y\"]]}}\n" + place +
                "\"histogram\":{\"name\":\"h\",\"min\":1,\"max\":2,\"count\":3,\"sum\":4,\"sum_squares\":5,"
                "\"nonfinite\":6,\"edges\":[1,1.5,2],\"counts\":[1,2]}}\n" +
                place + "\"artifact\":{\"name\":\"a\",\"path\":\"/x\"}}\n" + place + "\"system\":{\"memory\":7}}\n" +
                place + "\"final\":{\"loss\":0.5}}\n");
}

TEST(JSONLinesLogger, GoesBackToACheckpoint) {
  const TemporaryFolder folder;
  const auto logger = started(folder, 3600);
  logger->log_metrics({{"a", 1}}, {0, 1});
  logger->log_metrics({{"a", 2}}, {1, 2});
  logger->save();
  const std::string before = read_file(logger->metrics_path());
  const State state = logger->state_dict();
  logger->log_metrics({{"a", 3}}, {2, 3});
  logger->save();
  const auto again = started(folder);
  again->load_state_dict(state);
  EXPECT_EQ(read_file(again->metrics_path()), before);
  again->log_metrics({{"a", 4}}, {2, 3});
  EXPECT_EQ(read_file(again->metrics_path()), before + "{\"time\":3,\"step\":2,\"metrics\":{\"a\":4}}\n");
  again->load_state_dict(State());
  EXPECT_FALSE(std::filesystem::exists(again->metrics_path()));
}

TEST(JSONLinesLogger, RemovesALineThatAKilledProcessLeftHalfWritten) {
  const TemporaryFolder folder;
  const auto logger = started(folder);
  logger->log_metrics({{"a", 1}}, {0, 1});
  const std::string whole = read_file(logger->metrics_path());
  std::ofstream(logger->metrics_path(), std::ios::app) << "{\"time\":1";
  const auto again = started(folder);
  EXPECT_EQ(read_file(logger->metrics_path()), whole);
}

TEST(JSONLinesLogger, ReportsItIfLinesOfTheCheckpointAreMissing) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  const auto logger = started(folder);
  logger->log_metrics({{"a", 1}}, {0, 1});
  const State state = logger->state_dict();
  write_file_durably(logger->metrics_path(), "{}\n{");
  logger->load_state_dict(state);
  EXPECT_EQ(read_file(logger->metrics_path()), "{}\n");
  EXPECT_TRUE(console.has("holds 4 bytes where the checkpoint counts 38. The missing ones are lost."))
      << console.text();
}

}  // namespace
}  // namespace levin::json_lines_logger_test
