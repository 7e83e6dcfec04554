// A run.json that no Levin wrote: its folder is used all the same.
#include "levin/loggers/run_recorder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "levin/core/files/files.h"
#include "support/temporary_folder.h"

namespace levin::run_recorder_test {
namespace {

using Json = nlohmann::json;
using test::TemporaryFolder;

// Returns what a session writes that continues this record.
Json continued(const std::string& record) {
  const TemporaryFolder folder;
  folder.write("run.json", record);
  RunRecorder recorder(folder.path());
  const RunProgress status{.started = 200, .now = 210, .step = 4};
  recorder.begin(status, /*continues=*/true);
  recorder.write(status);
  return Json::parse(read_file(folder / "run.json"));
}

TEST(RunRecorder, ContinuesWithWhatItCanUse) {
  const Json record = continued(R"({"command": "fit", "started": 100, "updated": 150,
      "sessions": [{"started": 100, "status": "running"}], "checkpoints": [{"path": "/", "step": 3}]})");
  EXPECT_EQ(record["started"], 100);
  ASSERT_EQ(record["sessions"].size(), 2U);
  EXPECT_EQ(record["sessions"][0]["status"], "killed");
  EXPECT_EQ(record["checkpoints"].size(), 1U);
}

// JSON has no nan: it is written as null.
TEST(RunRecorder, KeepsSessionsAndMetricsOfARunThatHasSeenANan) {
  const Json record = continued(R"({"command": "fit", "started": 100, "updated": 150, "trained_seconds": null,
      "time_split": {"data": null}, "clock": null, "checkpoints": null,
      "sessions": [{"started": 50, "status": "success"}, {"started": 100, "status": "running"}],
      "metrics": {"a": 1,
                  "b": {"last": null, "last_step": 7, "min": null, "min_step": 5, "max": 2.5, "max_step": 6},
                  "c": {"last": 1.5, "last_step": 7, "min": 0.5, "min_step": 3, "max": 2.5, "max_step": 6}}})");
  ASSERT_EQ(record["sessions"].size(), 3U);
  EXPECT_EQ(record["sessions"][0]["status"], "success");
  EXPECT_EQ(record["sessions"][1]["status"], "killed");
  EXPECT_EQ(record["metrics"]["b"], Json::parse(R"({"last": null, "last_step": 7, "min": null, "min_step": 5,
                                                    "max": 2.5, "max_step": 6})"));
  EXPECT_EQ(record["metrics"]["c"]["min"], 0.5);
  EXPECT_FALSE(record["metrics"].contains("a"));
}

TEST(RunRecorder, TakesTheSmallestNumberAfterANan) {
  const TemporaryFolder folder;
  folder.write("run.json", R"({"command": "fit", "sessions": [],
      "metrics": {"loss": {"last": null, "last_step": 7, "min": null, "min_step": 5, "max": null, "max_step": 5}}})");
  RunRecorder recorder(folder.path());
  const RunProgress status{.started = 200, .now = 210, .step = 4};
  recorder.begin(status, /*continues=*/true);
  recorder.log_metrics({{"loss", 3.0}}, {8, 0});
  recorder.write(status);
  const Json loss = Json::parse(read_file(folder / "run.json"))["metrics"]["loss"];
  EXPECT_EQ(loss,
            Json::parse(R"({"last": 3.0, "last_step": 8, "min": 3.0, "min_step": 8, "max": 3.0, "max_step": 8})"));
}

// A program that calls fit again and again in one folder would read and write a longer list each time.
TEST(RunRecorder, JoinsTheOldestSessionsBeyondAHundred) {
  Json sessions = Json::array();
  for (int k = 0; k < 150; ++k) {
    sessions.push_back({{"started", 10 * k}, {"ended", 10 * k + 2}, {"first_step", 5 * k}, {"status", "success"}});
  }
  sessions[51]["status"] = "interrupted";
  const Json record = continued(Json{{"command", "fit"}, {"sessions", sessions}}.dump());
  ASSERT_EQ(record["sessions"].size(), 100U);
  const Json joined = {{"started", 0}, {"ended", 104}, {"first_step", 0}, {"status", "interrupted"}, {"sessions", 52}};
  EXPECT_EQ(record["sessions"][0], joined);  // 52 of 2 seconds each
  EXPECT_EQ(record["sessions"][1], sessions[52]);
  EXPECT_EQ(record["sessions"][98], sessions[149]);
  EXPECT_EQ(record["sessions"][99]["status"], "running");
  EXPECT_EQ(continued(record.dump())["sessions"][0]["sessions"], 53);
}

// A run that always keeps its best three would look for the files of all earlier saves each second.
TEST(RunRecorder, ForgetsCheckpointsWhoseFilesWereRemoved) {
  const TemporaryFolder folder;
  RunRecorder recorder(folder.path());
  const RunProgress status{.started = 200, .now = 210, .step = 4};
  recorder.begin(status, /*continues=*/false);
  const auto paths = [&] {
    recorder.write(status);
    std::string text;
    const Json record = Json::parse(read_file(folder / "run.json"));
    for (const Json& checkpoint : record["checkpoints"]) text += checkpoint["path"].get<std::string>() + " ";
    return text;
  };
  for (const char* name : {"a.ckpt", "b.ckpt"}) recorder.add_checkpoint({.path = folder.write(name, "weights")});
  EXPECT_EQ(paths(), "a.ckpt b.ckpt ");
  std::filesystem::remove(folder / "a.ckpt");
  EXPECT_EQ(paths(), "b.ckpt ");
  folder.write("a.ckpt", "another program's");
  EXPECT_EQ(paths(), "b.ckpt ");
  recorder.add_checkpoint({.path = folder / "a.ckpt"});
  EXPECT_EQ(paths(), "b.ckpt a.ckpt ");
}

TEST(RunRecorder, CountsWhatIsOfADifferentFormAsAbsent) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(R"({"sessions": {"a": {"status": "success"}}})"),
        std::string(R"({"sessions": [1, {"status": 2}, []], "checkpoints": [1, {"path": 2}, {}]})"),
        std::string(R"({"checkpoints": {"path": "/"}})"), std::string(R"({"sessions": 5, "checkpoints": "all"})"),
        "{\"sessions\": " + deep + "}", "{\"checkpoints\": [{\"path\": \"/\", \"step\": " + deep + "}]}"}) {
    const Json record = continued(text);
    EXPECT_EQ(record["sessions"].size(), 1U) << text.substr(0, 100);
    EXPECT_EQ(record["checkpoints"].size(), 0U) << text.substr(0, 100);
    EXPECT_EQ(record["step"], 4);
  }
}

}  // namespace
}  // namespace levin::run_recorder_test
