// A run.json that no Levin wrote: its folder is used all the same.
#include "levin/loggers/run_recorder.h"

#include <gtest/gtest.h>

#include "levin/core/files.h"
#include "support/temporary_folder.h"

namespace levin::run_recorder_test {
namespace {

using Json = nlohmann::json;
using test::TemporaryFolder;

// What a session that goes on with this record writes.
Json continued(const std::string& record) {
  const TemporaryFolder folder;
  folder.write("run.json", record);
  RunRecorder recorder(folder.path());
  const RunProgress status{.started = 200, .now = 210, .step = 4};
  recorder.begin(status, /*continues=*/true);
  recorder.write(status);
  return Json::parse(read_file(folder / "run.json"));
}

TEST(RunRecorder, GoesOnWithWhatItCanUse) {
  const Json record = continued(R"({"command": "fit", "started": 100, "updated": 150,
      "sessions": [{"started": 100, "status": "running"}], "checkpoints": [{"path": "/", "step": 3}]})");
  EXPECT_EQ(record["started"], 100);
  ASSERT_EQ(record["sessions"].size(), 2U);
  EXPECT_EQ(record["sessions"][0]["status"], "killed");
  EXPECT_EQ(record["checkpoints"].size(), 1U);
}

TEST(RunRecorder, CountsWhatIsOfAnotherFormAsAbsent) {
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
