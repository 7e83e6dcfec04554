// Runs compared: options that differ, conditions, orders, and the table of `levin runs`.
#include "levin/cli/runs/run_list.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "levin/cli/runs/run_table.h"
#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::run_list_test {
namespace {

ListedRun make_run(const std::string& name, double started, FlatOptions hparams, double val_loss,
                   RunStatus status = RunStatus::success) {
  ListedRun run;
  run.record.name = name;
  run.record.started = started;
  run.record.ended = started + 90;
  run.record.status = status;
  run.record.step = 100;
  run.options.hparams = std::move(hparams);
  run.options.config = {{"trainer.max_epochs", "5"}, {"model.class_path", "Net"}};
  for (const auto& [key, value] : run.options.hparams) run.options.config.emplace_back("model.init_args." + key, value);
  if (!std::isnan(val_loss)) {
    run.record.metrics["val_loss"] = {val_loss, val_loss / 2, 4 * val_loss, 99, 50, 0};
    run.record.metrics["val_acc"] = {1 - val_loss, 0, 1 - val_loss / 2, 99, 0, 50};
  }
  return run;
}

std::vector<ListedRun> some_runs() {
  return {make_run("run_2", 2000, {{"lr", "0.01"}, {"width", "64"}}, 0.5),
          make_run("run_10", 3000, {{"lr", "1e-3"}, {"width", "64"}}, 0.25, RunStatus::failed),
          make_run("run_1", 1000, {{"lr", "0.1"}, {"width", "64"}, {"act", "relu"}}, kUnknown)};
}

std::string names(const std::vector<ListedRun>& runs) {
  std::string all;
  for (const auto& run : runs) all += (all.empty() ? "" : " ") + run.record.name;
  return all;
}

std::string chosen(const std::string& filter) {
  std::vector<ListedRun> runs = some_runs();
  const auto condition = parse_filter(filter, RunColumns(runs));
  std::erase_if(runs, [&](const ListedRun& run) { return !condition(run); });
  return names(runs);
}

std::string sorted(const std::string& order) {
  std::vector<ListedRun> runs = some_runs();
  sort_runs(runs, order);
  return names(runs);
}

TEST(RunFilter, ComparesNumbersAsNumbers) {
  EXPECT_EQ(chosen("lr>0.005"), "run_2 run_1");
  EXPECT_EQ(chosen("lr = 0.001"), "run_10");
  EXPECT_EQ(chosen("lr<=1e-2"), "run_2 run_10");
  EXPECT_EQ(chosen("val_loss<0.5"), "run_10");
  EXPECT_EQ(chosen("val_loss.min<0.3"), "run_2 run_10");
  EXPECT_EQ(chosen("val_loss.max>=2"), "run_2");
  EXPECT_EQ(chosen("metrics.val_loss>0"), "run_2 run_10");
  EXPECT_EQ(chosen("max_epochs=5"), "run_2 run_10 run_1");
  EXPECT_EQ(chosen("config.trainer.max_epochs!=5"), "");
}

TEST(RunFilter, ComparesStrings) {
  EXPECT_EQ(chosen("status=failed"), "run_10");
  EXPECT_EQ(chosen("status!=failed"), "run_2 run_1");
  EXPECT_EQ(chosen("name~_1"), "run_10 run_1");
  EXPECT_EQ(chosen("hparams.act=relu"), "run_1");
  EXPECT_EQ(chosen("act!=relu"), "run_2 run_10");  // those without it too
}

TEST(RunFilter, TakesDatesAndDurations) {
  EXPECT_EQ(chosen("duration>1min"), "run_2 run_10 run_1");
  EXPECT_EQ(chosen("duration>90"), "");
  EXPECT_EQ(chosen("started>1970-01-05"), "");
  EXPECT_EQ(chosen("started<1970-01-05"), "run_2 run_10 run_1");
}

TEST(RunFilter, MistakesNameTheColumn) {
  const auto error = [](const std::string& filter) { return test::error_of([&] { (void)chosen(filter); }); };
  EXPECT_EQ(error("lr"),
            "--filter \"lr\": it compares nothing. Write NAME, one of = != < <= > >= ~, and a value: "
            "\"lr>0.001\".");
  EXPECT_EQ(error(">3"),
            "--filter \">3\": it compares nothing. Write NAME, one of = != < <= > >= ~, and a value: "
            "\"lr>0.001\".");
  EXPECT_EQ(error("lr!3"), "--filter \"lr!3\": \"!\" alone compares nothing. Write !=.");
  EXPECT_TRUE(
      test::holds(error("val_los<1"), {"--filter \"val_los<1\": no run has a column \"val_los\". Did you mean "
                                       "\"val_loss\"? Known: name, status, started",
                                       "val_acc, val_loss", "the keys of config.yaml, e.g. trainer.max_epochs."}));
  EXPECT_EQ(error("val_loss<small"),
            "--filter \"val_loss<small\": \"small\" cannot be compared with <. val_loss takes a "
            "number.");
  EXPECT_EQ(error("started>soon"),
            "--filter \"started>soon\": \"soon\" cannot be compared with >. started takes a date: "
            "2026-11-23 or \"2026-11-23 10:57\".");
  EXPECT_EQ(error("duration>long"),
            "--filter \"duration>long\": \"long\" cannot be compared with >. duration takes "
            "seconds or a duration: 90, 10min, 1h30m.");
}

TEST(RunFilter, ANameOfSeveralOptionsIsRefused) {
  ListedRun run = make_run("a", 1, {}, 1);
  run.options.config = {{"trainer.callbacks.0.init_args.mode", "min"}, {"trainer.callbacks.1.init_args.mode", "max"}};
  const std::vector<ListedRun> runs{run};
  EXPECT_EQ(test::error_of([&] { (void)parse_filter("mode=min", RunColumns(runs)); }),
            "\"mode\" could be several options: trainer.callbacks.0.init_args.mode, "
            "trainer.callbacks.1.init_args.mode. Write one in full.");
}

TEST(RunOrder, IsByNumberNameOrTimeWithUnknownOnesLast) {
  EXPECT_EQ(sorted("val_loss"), "run_10 run_2 run_1");
  EXPECT_EQ(sorted("-val_loss"), "run_2 run_10 run_1");
  EXPECT_EQ(sorted("name"), "run_1 run_2 run_10");
  EXPECT_EQ(sorted("-started"), "run_10 run_2 run_1");
  EXPECT_EQ(sorted("lr"), "run_10 run_2 run_1");
  EXPECT_TRUE(
      test::holds(test::error_of([] { (void)sorted("nothing"); }), {"--sort: no run has a column \"nothing\""}));
}

TEST(RunOptionsCompared, HoldWhatDiffersAndNoRepetition) {
  const std::vector<ListedRun> runs = some_runs();
  std::vector<const RunOptions*> all;
  for (const auto& run : runs) all.push_back(&run.options);
  std::string differing;
  size_t count = 0;
  for (const auto& row : compare_options(all)) {
    if (row.differs) differing += row.name + " ";
    ++count;
  }
  EXPECT_EQ(differing, "lr act ");
  EXPECT_EQ(count, 5U);  // lr, width, act, trainer.max_epochs, model.class_path
}

TEST(RunOptionsCompared, HaveShortNamesThatTellThemApart) {
  EXPECT_EQ(
      short_option_names({"lr", "trainer.max_epochs", "a.init_args.mode", "b.init_args.mode", "optimizer.lr", "x.0"}),
      (std::vector<std::string>{"lr", "max_epochs", "a.init_args.mode", "b.init_args.mode", "optimizer.lr", "x.0"}));
}

TEST(RunOptionsCompared, AreFlatInTheOrderOfTheFile) {
  const test::TemporaryFolder folder;
  folder.write("config.yaml",
               "trainer:\n  devices: [0, 1]\n  callbacks:\n    - class_path: A\n  logger: null\nmodel: {}\n");
  folder.write("hparams.yaml", "lr: 0.1\nlr: 2\n");
  const RunOptions options = read_run_options(folder.path());
  EXPECT_EQ(options.config, (FlatOptions{{"trainer.devices", "[0, 1]"},
                                         {"trainer.callbacks.0.class_path", "A"},
                                         {"trainer.logger", "null"},
                                         {"model", "{}"}}));
  ASSERT_EQ(options.problems.size(), 1U);
  EXPECT_TRUE(test::holds(options.problems[0], {"hparams.yaml:2:1"}));
}

TEST(RunTable, FitsItsWidthAndNamesWhatItLeavesOut) {
  std::vector<ListedRun> runs = some_runs();
  for (const int width : {30, 60, 80, 120, 300}) {
    const std::string table = run_table(runs, {width, {}});
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line) && !line.empty();) {
      EXPECT_LE(line.size(), static_cast<size_t>(std::max(width, 30))) << line;
    }
    EXPECT_EQ(table.find("Not shown") == std::string::npos, width >= 80) << width;
  }
  EXPECT_TRUE(test::holds(run_table(runs, {60, {}}), {"Not shown, as the width is 60: ", "--json has everything."}));
}

TEST(RunTable, ShowsBestAndLastOfTheMonitoredMetric) {
  std::vector<ListedRun> runs = some_runs();
  EXPECT_EQ(main_metric(runs), "val_loss");
  EXPECT_TRUE(test::holds(run_table(runs, {200, {"val_acc"}}),
                          {"name    status   started           ", "1 min 30 s  0.01  ", "val_loss best  last",
                           "val_acc best  last", "0.25   0.5          0.75   0.5", "0.125  0.25         0.875  0.75"}));
  for (auto& run : runs) run.record.monitor = "val_acc";
  EXPECT_EQ(main_metric(runs), "val_acc");
  EXPECT_DOUBLE_EQ(best_value("val_acc", runs[0].record).first, 0.75);
  runs[0].record.monitor_mode = "min";
  EXPECT_DOUBLE_EQ(best_value("val_acc", runs[0].record).first, 0);
}

TEST(RunTable, NamesFromFilesStayOnTheirLine) {
  std::vector<ListedRun> runs = some_runs();
  runs[0].record.name = "a\nb\x1b[2J";
  runs[0].options.hparams[0].second = "x\ty\n";
  const std::string table = run_table(runs, {200, {}});
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
  EXPECT_TRUE(test::holds(table, {"a b\\x1b[2J", "x y"}));
}

TEST(RunJson, HoldsEverythingInAscii) {
  std::vector<ListedRun> runs = some_runs();
  runs[0].record.name = "ü\xff\"\n";
  runs[0].record.metrics["loss"].last = kUnknown;
  const std::string text = runs_as_json(runs);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c > 0; }));
  const auto read = nlohmann::json::parse(text);
  ASSERT_EQ(read["runs"].size(), 3U);
  EXPECT_EQ(read["runs"][0]["name"], "ü\ufffd\"\n");
  EXPECT_EQ(read["runs"][1]["status"], "failed");
  EXPECT_EQ(read["runs"][1]["metrics"]["val_loss"]["min"], 0.125);
  EXPECT_EQ(read["runs"][1]["hparams"]["lr"], "1e-3");
  EXPECT_EQ(read["runs"][1]["config"]["trainer.max_epochs"], "5");
  EXPECT_TRUE(read["runs"][0]["metrics"]["loss"]["last"].is_null());
  EXPECT_EQ(read["runs"][2]["duration"], 90.0);
}

// The folder that the process is in is gone, and with it the name of ".".
TEST(RunsReadOnSeveralThreads, HaveTheirErrorOnTheCallersThread) {
  const auto before = std::filesystem::current_path();
  {
    const test::TemporaryFolder gone;
    std::filesystem::current_path(gone.path());
  }
  EXPECT_THROW((void)read_runs(std::vector<std::string>(64, "."), ""), std::filesystem::filesystem_error);
  std::filesystem::current_path(before);
}

TEST(RunsWithoutARecord, AreCompletedFromTheirOtherFiles) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "version_0");
  folder.write("version_0/hparams.yaml", "lr: 0.1\n");
  folder.write("version_0/config.yaml",
               "trainer:\n  callbacks:\n    - {class_path: EarlyStopping, init_args: {monitor: loss}}\n"
               "    - {class_path: ModelCheckpoint, init_args: {monitor: val_acc, mode: max}}\n");
  folder.write("version_0/metrics.csv", "epoch,step,loss,val_acc\n0,4,0.5,\n0,9,nan,0.25\n0,19,0.75,0.125\n");
  const auto runs = read_runs({folder / "version_0"}, folder.path());
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].record.name, "version_0");
  EXPECT_EQ(runs[0].record.monitor, "val_acc");
  EXPECT_EQ(runs[0].record.step, 19);
  EXPECT_EQ(best_value("val_acc", runs[0].record), (std::pair<double, int64_t>{0.25, 9}));
  EXPECT_EQ(runs[0].record.metrics.at("loss").max, 0.75);
  EXPECT_EQ(runs[0].record.metrics.at("loss").min_step, 4);
}

double processor_seconds(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(RunJson, TakesATimeThatIsLinearInTheNumberOfMetrics) {
  const auto seconds = [](int count) {
    ListedRun run = make_run("many", 1, {}, 0.5);
    for (int i = 0; i < count; ++i) {
      run.record.metrics["layer." + std::to_string(i)] = {1, 0, 2, 9, 3, 4};
      run.options.hparams.emplace_back("option." + std::to_string(i), "1");
    }
    nlohmann::json read;
    const double took = processor_seconds([&] { read = nlohmann::json::parse(runs_as_json({run})); });
    EXPECT_EQ(read.at("runs")[0].at("metrics").size(), static_cast<size_t>(count) + 2);
    EXPECT_EQ(read.at("runs")[0].at("hparams").size(), static_cast<size_t>(count));
    return took;
  };
  EXPECT_LT(seconds(20000), 9 * seconds(5000));  // four times as many; 13 times the time where each looks at all others
}

TEST(RunJson, KeepsTheLastOfTwoOptionsOfOneName) {
  ListedRun run = make_run("twice", 1, {{"a.b", "1"}, {"c", "2"}, {"a.b", "3"}}, 0.5);
  const std::string text = runs_as_json({run});
  EXPECT_EQ(nlohmann::json::parse(text).at("runs")[0].at("hparams"), (nlohmann::json{{"a.b", "3"}, {"c", "2"}}));
  EXPECT_EQ(text.find("\"a.b\": \"1\""), std::string::npos);
}

}  // namespace
}  // namespace levin::run_list_test
