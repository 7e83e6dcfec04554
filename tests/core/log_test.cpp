// The log of a run: its files on the disk, its cost, and its messages when it cannot be written.
#include "levin/core/process/log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace levin::log_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

using test::error_of;
using test::expect_parts;
using test::has;

// The process has one log: every test restores it.
class RunLog : public testing::Test {
 protected:
  void SetUp() override {  // lines that other tests left waiting go elsewhere
    const test::TemporaryFolder elsewhere;
    log::open(elsewhere.path(), 0);
    reset();
  }
  void TearDown() override { reset(); }

  static void reset() {
    log::close();
    for (const auto source : {log::Source::options, log::Source::environment, log::Source::command_line}) {
      log::set_levels("", source);
      log::set_format("", source);
    }
    log::set_position(-1, -1);
    ::unsetenv("LEVIN_LOG");
    ::unsetenv("LEVIN_LOG_FORMAT");
  }

  [[nodiscard]] std::string file(const std::string& name = "run.log") const { return read_file(folder_ / name); }

  test::TemporaryFolder folder_;
  test::CapturedConsole console_;
};

struct Counted {
  int* count;
  friend std::ostream& operator<<(std::ostream& out, const Counted& one) {
    ++*one.count;
    return out;
  }
};

TEST(LogLevels, AreReadFromOneText) {
  const log::Levels levels = log::parse_levels(" data=debug , info,trainer=off,", "x");
  EXPECT_EQ(levels.all, log::Level::info);
  ASSERT_EQ(levels.components.size(), 2u);
  EXPECT_EQ(levels.components[0], (std::pair{std::string("data"), log::Level::debug}));
  EXPECT_EQ(levels.components[1], (std::pair{std::string("trainer"), log::Level::off}));
  EXPECT_EQ(log::parse_levels("warning", "x").all, log::Level::warn);
  EXPECT_FALSE(log::parse_levels("", "x").all);
}

TEST(LogLevels, AMistakeNamesTheComponentAndListsTheKnownOnes) {
  expect_parts(error_of([] { (void)log::parse_levels("dta=debug", "LEVIN_LOG"); }),
               {"LEVIN_LOG: unknown component \"dta\".", "Did you mean \"data\"?",
                "Known: checkpoint, console, data, hooks, launcher, logger,"});
  expect_parts(error_of([] { (void)log::parse_levels("debgu", "--log_level"); }),
               {"--log_level: unknown level \"debgu\".", "Did you mean \"debug\"?",
                "Known: trace, debug, info, warn, error, off.", "COMPONENT=LEVEL"});
  expect_parts(error_of([] { (void)log::parse_levels("data=loud", "x"); }), {"x: unknown level \"loud\"."});
  expect_parts(error_of([] { (void)log::parse_levels("data", "x"); }),
               {"x: no level follows the component \"data\". Write data=debug."});
}

TEST_F(RunLog, ARunClosesOnlyItsOwnFile) {
  const test::TemporaryFolder other;
  const int64_t first = log::open(folder_.path(), 0);
  EXPECT_EQ(log::open(folder_.path(), 0), first);  // it is open
  const int64_t second = log::open(other.path(), 0);
  log::close(first);
  log::info("after the first run");
  log::close(second);
  log::info("after both");
  EXPECT_TRUE(has(read_file(other / "run.log"), "after the first run"));
  EXPECT_FALSE(has(read_file(other / "run.log"), "after both"));
}

TEST_F(RunLog, ALineHasTimeLevelComponentRankAndPlace) {
  log::open(folder_.path(), 0);
  log::info("before any epoch");
  log::set_position(2, 340);
  log::data.info("{} batches", 12);
  log::close();
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 2u);
  const std::string time = R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} )";
  EXPECT_TRUE(std::regex_match(lines[0], std::regex(time + "info    user       rank 0: before any epoch"))) << lines[0];
  EXPECT_TRUE(std::regex_match(lines[1], std::regex(time + "info    data       rank 0, epoch 2, step 340: 12 batches")))
      << lines[1];
}

TEST_F(RunLog, EveryRankHasAFileOfItsOwn) {
  log::open(folder_.path(), 3);
  log::info("here");
  log::close();
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"run.rank3.log"});
  EXPECT_TRUE(has(file("run.rank3.log"), "rank 3: here"));
}

TEST_F(RunLog, LevelsFollowTheComponent) {
  log::open(folder_.path(), 0);
  log::set_levels("data=debug,checkpoint=error,warn", log::Source::environment);
  log::data.debug("data debug");
  log::data.trace("data trace");
  log::checkpoint.warn("checkpoint warning");
  log::checkpoint.error("checkpoint error");
  log::info("user info");
  log::warn("user warning");
  log::close();
  std::vector<std::string> messages;
  for (const auto& line : lines_of(file())) messages.push_back(line.substr(line.find(": ") + 2));
  EXPECT_EQ(messages, (std::vector<std::string>{"data debug", "checkpoint error", "user warning"}));
}

TEST_F(RunLog, TheCommandLineWinsOverTheEnvironmentAndThatOverTheOptions) {
  const log::Component& data = log::data;
  log::set_levels("trace", log::Source::options);
  EXPECT_TRUE(data.writes(log::Level::trace));
  ::setenv("LEVIN_LOG", "data=warn", 1);
  log::read_environment();
  EXPECT_FALSE(data.writes(log::Level::info));
  EXPECT_TRUE(log::user.writes(log::Level::trace));
  log::set_levels("data=debug", log::Source::command_line);
  EXPECT_TRUE(data.writes(log::Level::debug));
  log::set_levels("off", log::Source::command_line);
  EXPECT_FALSE(log::user.writes(log::Level::error));
}

TEST_F(RunLog, MistakesInTheEnvironmentAndInTheOptionsSayWhere) {
  ::setenv("LEVIN_LOG", "dta=debug", 1);
  expect_parts(error_of([] { log::read_environment(); }), {"LEVIN_LOG: unknown component \"dta\"."});
  ::setenv("LEVIN_LOG", "data=debug", 1);
  ::setenv("LEVIN_LOG_FORMAT", "xml", 1);
  expect_parts(error_of([] { log::read_environment(); }),
               {"LEVIN_LOG_FORMAT: unknown format \"xml\". Known: text, json."});
  expect_parts(error_of([] { log::set_format("yaml", log::Source::command_line); }), {"--log_format: unknown format"});
  expect_parts(error_of([&] { log::open(folder_.path(), 0, {.level = "loud"}); }), {"log.level: unknown level"});
  expect_parts(error_of([&] { log::open(folder_.path(), 0, {.max_bytes = 10}); }), {"log.max_bytes", ">= 1000", "10"});
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(RunLog, AComponentOfAProgramHasALevelOfItsOwn) {
  const log::Component sampler("sampler");
  log::set_levels("sampler=debug,off", log::Source::environment);
  log::open(folder_.path(), 0);
  sampler.debug("drew {} negatives", 7);
  log::error("not written");
  log::close();
  ASSERT_EQ(lines_of(file()).size(), 1u);
  EXPECT_TRUE(has(file(), "debug   sampler    rank 0: drew 7 negatives"));
  EXPECT_TRUE(log::Component("sampler").writes(log::Level::debug));  // the same one
}

TEST_F(RunLog, NothingIsConvertedForALevelThatIsOff) {
  int converted = 0;
  log::debug("{}", Counted{&converted});
  EXPECT_EQ(converted, 0);
  log::info("{}", Counted{&converted});
  EXPECT_EQ(converted, 1);
}

TEST_F(RunLog, JsonLinesCanBeReadForAnyText) {
  log::set_format("json", log::Source::environment);
  log::open(folder_.path(), 1);
  log::set_position(0, 5);
  log::info("a \"quoted\" \\ text\nin two lines\twith \x1b[31m and \xff and ü");
  log::set_position(-1, -1);
  log::data.error("bad");
  log::close();
  const auto lines = lines_of(file("run.rank1.log"));
  ASSERT_EQ(lines.size(), 2u);
  const json first = json::parse(lines[0]);
  EXPECT_EQ(first.at("text"), "a \"quoted\" \\ text\nin two lines\twith \\x1b[31m and \\xff and ü");
  EXPECT_EQ(first.at("level"), "info");
  EXPECT_EQ(first.at("component"), "user");
  EXPECT_EQ(first.at("rank"), 1);
  EXPECT_EQ(first.at("epoch"), 0);
  EXPECT_EQ(first.at("step"), 5);
  EXPECT_TRUE(std::regex_match(first.at("time").get<std::string>(),
                               std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d)")));
  const json second = json::parse(lines[1]);
  EXPECT_FALSE(second.contains("epoch"));
  EXPECT_EQ(second.at("level"), "error");
}

TEST_F(RunLog, FurtherLinesOfAMessageAreIndentedAndSequencesEscaped) {
  log::open(folder_.path(), 0);
  log::info("one\ntwo \x1b[2J");
  log::close();
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "    two \\x1b[2J");
}

TEST_F(RunLog, FilesAreRotatedBySizeAndTheOldestRemoved) {
  log::open(folder_.path(), 0, {.max_bytes = 1000, .max_files = 3});
  for (int k = 0; k < 100; ++k) log::info("line {:03d} of a hundred", k);
  log::close();
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"run.1.log", "run.2.log", "run.log"}));
  for (const auto& name : folder_.names()) EXPECT_LE(fs::file_size(folder_ / name), 1000u) << name;
  std::string all = file("run.2.log") + file("run.1.log") + file();
  EXPECT_TRUE(all.ends_with("line 099 of a hundred\n"));
  const auto lines = lines_of(all);
  const int first = std::stoi(lines[0].substr(lines[0].find("line ") + 5));
  EXPECT_EQ(static_cast<int>(lines.size()), 100 - first);  // none is missing in between
  for (const auto& name : folder_.names()) EXPECT_TRUE(log::is_log_file(name)) << name;
}

TEST(LogFiles, AreKnownByTheirNames) {
  for (const char* name : {"run.log", "run.1.log", "run.rank12.log", "run.rank1.3.log"})
    EXPECT_TRUE(log::is_log_file(name)) << name;
  for (const char* name : {"run.json", "run.lock", "myrun.log", "run.x.log", "log", "run.old.log", "run.logs"})
    EXPECT_FALSE(log::is_log_file(name)) << name;
}

TEST_F(RunLog, AFileThatExistsIsContinued) {
  for (int k = 0; k < 2; ++k) {
    log::open(folder_.path(), 0);
    log::info("start {}", k);
    log::close();
  }
  EXPECT_EQ(lines_of(file()).size(), 2u);
}

TEST_F(RunLog, LinesFromBeforeTheFolderAreWrittenWhenItIsKnown) {
  log::set_position(1, 2);
  log::info("early");
  log::set_position(3, 4);
  log::open(folder_.path(), 0);
  log::info("late");
  log::close();
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(has(lines[0], "epoch 1, step 2: early"));
  EXPECT_LT(lines[0].substr(0, 23), lines[1].substr(0, 23) + "~");
}

TEST_F(RunLog, OfTooManyEarlyLinesTheLastAreKeptAndTheOthersCounted) {
  for (int k = 0; k < 1005; ++k) log::info("early {}", k);
  log::open(folder_.path(), 0);
  log::close();
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 1001u);
  EXPECT_TRUE(has(lines[0], "5 earlier lines are left out: at most 1000 wait")) << lines[0];
  EXPECT_TRUE(lines[1].ends_with("early 5"));
  EXPECT_TRUE(lines[1000].ends_with("early 1004"));
}

TEST_F(RunLog, WarningsAndErrorsOfTheConsoleAreInTheFileToo) {
  log::open(folder_.path(), 0);
  Console::instance().warn("odd {}");
  Console::instance().error("bad");
  Console::instance().print("a result");
  log::close();
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(has(lines[0], "warning console    rank 0: odd {}"));
  EXPECT_TRUE(has(lines[1], "error   console    rank 0: bad"));
  EXPECT_EQ(console_.lines(), (std::vector<std::string>{"warning: odd {}", "error: bad", "a result"}));
}

TEST_F(RunLog, TheConsoleShowsWarningsAndWhatIsSetToDebugAlone) {
  log::open(folder_.path(), 0);
  log::info("quiet");
  log::warn("odd");
  log::set_levels("data=debug", log::Source::command_line);
  log::data.debug("fetched {}", 3);
  log::data.info("begins");
  log::info("quiet again");
  EXPECT_EQ(console_.lines(),
            (std::vector<std::string>{"warning: odd", "debug: data: fetched 3", "info: data: begins"}));
}

TEST_F(RunLog, AFullDiskIsReportedOnceAndTheLostLinesCounted) {
  {
    const test::FileSizeLimit no_room(0);
    log::open(folder_.path(), 0);
    for (int k = 0; k < 3; ++k) log::info("line {}", k);
  }
  EXPECT_EQ(console_.lines().size(), 1u);
  expect_parts(console_.text(), {"warning: the log of the run: cannot write " + folder_.path() + "/run.log",
                                 "File too large", "The run continues"});
  log::close();
  EXPECT_TRUE(console_.has("3 lines of " + folder_.path() + "/run.log could not be written."));
}

TEST_F(RunLog, IsWrittenToNothingButARegularFileOfItsFolder) {
  const std::string theirs = folder_.write("theirs", "theirs");
  ASSERT_EQ(::symlink(theirs.c_str(), (folder_ / "run.log").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ / "run.rank1.log").c_str(), 0600), 0);
  log::open(folder_.path(), 0);
  log::info("lost");
  expect_parts(console_.text(),
               {"warning: the log of the run: cannot write " + folder_.path() +
                "/run.log: it is a symbolic link, not a regular file. The run continues without this"});
  log::close();
  log::open(folder_.path(), 1);
  expect_parts(console_.text(), {"/run.rank1.log: it is a FIFO, not a regular file. The run continues"});
  EXPECT_EQ(file("theirs"), "theirs");
}

TEST_F(RunLog, AFolderThatCannotBeWrittenIsReportedOnceAndTheRunContinues) {
  const std::string in_the_way = folder_.write("file", "");
  log::open(in_the_way + "/below", 0);
  log::info("lost");
  log::info("lost");
  EXPECT_EQ(console_.lines().size(), 1u);
  expect_parts(console_.text(), {"the log of the run: cannot write " + in_the_way + "/below/run.log: Not a directory",
                                 "The run continues without this file."});
}

TEST_F(RunLog, AReadOnlyFolderIsReportedWithItsCause) {
  const std::string folder = folder_ / "closed";
  fs::create_directory(folder);
  ::chmod(folder.c_str(), 0555);
  const pid_t child = ::fork();  // root may write anywhere
  if (child == 0) {
    ::chmod(folder_.path().c_str(), 0755);
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    log::open(folder, 0);
    const bool has_all = console_.has("cannot write " + folder +
                                      "/run.log: Permission denied. Choose a place where this user may write. "
                                      "The run continues without this file.");
    ::_exit(has_all ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(RunLog, ThreadsWriteWholeLines) {
  log::open(folder_.path(), 0, {.max_bytes = 20'000, .max_files = 100});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int k = 0; k < 250; ++k) log::info("thread {} line {} end", t, k);
    });
  }
  for (auto& thread : threads) thread.join();
  log::close();
  size_t whole = 0;
  for (const auto& name : folder_.names()) {
    for (const auto& line : lines_of(file(name))) {
      EXPECT_TRUE(std::regex_search(line, std::regex(R"(rank 0: thread \d line \d+ end$)"))) << line;
      ++whole;
    }
  }
  EXPECT_EQ(whole, 1000u);
}

TEST_F(RunLog, AProgramThatIsStartedDoesNotHoldTheFileOpen) {
  log::open(folder_.path(), 0, {.max_bytes = 1000, .max_files = 2});
  for (int k = 0; k < 30; ++k) log::info("line {}", k);  // rotated: the new file must not be inherited either
  const std::string listing = folder_ / "open_files";
  ASSERT_EQ(std::system(("ls -l /proc/self/fd > " + listing).c_str()), 0);
  EXPECT_FALSE(has(read_file(listing), "run.log")) << read_file(listing);
}

}  // namespace
}  // namespace levin::log_test
