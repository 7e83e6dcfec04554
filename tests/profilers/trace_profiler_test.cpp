// Traces of real fits, read back as JSON.
#include "levin/profilers/trace_profiler.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "callbacks/quiet_trainer.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/field_count.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::trace_profiler_test {
namespace {

using namespace test;
using nlohmann::json;

std::vector<json> events_of(const std::string& path) {
  std::vector<json> events;
  const json file = json::parse(read_file(path));
  for (const auto& event : file.at("traceEvents")) {
    if (event.value("ph", "") == "X") events.push_back(event);
  }
  return events;
}

std::vector<json> called(const std::vector<json>& events, const std::string& category, const std::string& name) {
  std::vector<json> found;
  for (const auto& event : events) {
    if (event.value("cat", "") == category && event.value("name", "") == name) found.push_back(event);
  }
  return found;
}

bool within(const json& inner, const json& outer) {
  const double start = inner.at("ts"), outer_start = outer.at("ts");
  return start >= outer_start &&
         start + inner.at("dur").get<double>() <= outer_start + outer.at("dur").get<double>() + 1e-3;
}

TrainerOptions traced(std::shared_ptr<TraceProfiler> profiler, const std::string& folder) {
  TrainerOptions options = quiet(1, {}, folder);
  options.profiler = std::move(profiler);
  return options;
}

TEST(TraceProfiler, WritesOperatorsAndLevinsRangesOfTheActiveSteps) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  auto profiler = std::make_shared<TraceProfiler>();
  TinyModule module;
  Trainer trainer(traced(profiler, folder.path()));
  trainer.fit(module, tiny_loader(40), tiny_loader(8));
  ASSERT_EQ(profiler->files(), std::vector<std::string>{folder / "fit-trace-rank0-0.pt.trace.json"});
  const auto events = events_of(profiler->files()[0]);

  std::set<std::string> steps;
  for (const auto& event : events) {
    const std::string name = event.value("name", "");
    if (name.rfind("ProfilerStep#", 0) == 0) steps.insert(name);
  }
  EXPECT_EQ(steps, (std::set<std::string>{"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"}))
      << "one step is waited for, one warms up, three are recorded";
  for (const char* range : {"training_step", "backward", "optimizer_step", "run_training_batch"}) {
    const auto found = called(events, "user_annotation", range);
    ASSERT_EQ(found.size(), 3U) << range;
    for (const auto& one : found) EXPECT_GT(one.at("dur").get<double>(), 0) << range;
  }
  const auto forward = called(events, "user_annotation", "training_step");
  const auto linear = called(events, "cpu_op", "aten::addmm");
  ASSERT_EQ(linear.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(linear[i].at("dur").get<double>(), 0);
    EXPECT_TRUE(within(linear[i], forward[i])) << "the module's operators lie in its step";
  }
  EXPECT_FALSE(called(events, "cpu_op", "aten::mse_loss_backward").empty()) << "backward's operators";

  EXPECT_TRUE(console.has("fit-trace-rank0-0.pt.trace.json")) << console.text();
  EXPECT_TRUE(console.has("aten::addmm")) << console.text();
}

TEST(TraceProfiler, RepeatsAndWritesWhatTheRunsEndCutsShort) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  auto profiler = std::make_shared<TraceProfiler>(TraceProfilerOptions{
      .dirpath = folder / "traces", .filename = "mine", .wait = 0, .warmup = 0, .active = 4, .repeat = 0});
  TinyModule module;
  Trainer(traced(profiler, folder.path())).fit(module, tiny_loader(40));
  ASSERT_EQ(profiler->files().size(), 3U);
  EXPECT_EQ(profiler->files()[2], folder / "traces/fit-mine-rank0-2.pt.trace.json");
  std::vector<size_t> steps;
  for (const auto& file : profiler->files())
    steps.push_back(called(events_of(file), "user_annotation", "training_step").size());
  EXPECT_EQ(steps, (std::vector<size_t>{4, 4, 2}));
}

TEST(TraceProfiler, CountsTheBatchesOfAnEvaluationByItself) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  auto profiler = std::make_shared<TraceProfiler>(TraceProfilerOptions{.active = 1, .record_shapes = true});
  TinyModule module;
  Trainer(traced(profiler, folder.path())).test(module, tiny_loader(40));
  ASSERT_EQ(profiler->files(), std::vector<std::string>{folder / "test-trace-rank0-0.pt.trace.json"});
  const auto events = events_of(profiler->files()[0]);
  EXPECT_EQ(called(events, "user_annotation", "test_step").size(), 1U);
  const auto linear = called(events, "cpu_op", "aten::addmm");
  ASSERT_EQ(linear.size(), 1U);
  EXPECT_EQ(linear[0].at("args").at("Input Dims").dump(), "[[1],[4,4],[4,1],[],[]]");
}

TEST(TraceProfiler, AStepThatThrowsLeavesATraceAndTheProfilerUsable) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  auto profiler = std::make_shared<TraceProfiler>(TraceProfilerOptions{.wait = 0});
  TinyModule module;
  module.on_training_step = [](int64_t index) {
    if (index == 2) throw Error("enough");
  };
  Trainer trainer(traced(profiler, folder.path()));
  EXPECT_TRUE(has(error_of([&] { trainer.fit(module, tiny_loader(40)); }), "enough"));
  ASSERT_EQ(profiler->files().size(), 1U);
  EXPECT_EQ(called(events_of(profiler->files()[0]), "user_annotation", "training_step").size(), 2U);
  module.on_training_step = nullptr;
  trainer.fit(module, tiny_loader(40));
  EXPECT_EQ(called(events_of(profiler->files().back()), "user_annotation", "training_step").size(), 3U);
}

TEST(TraceProfiler, AFolderThatCannotBeWrittenCostsTheTraceAndNotTheRun) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  write_file_durably(folder / "taken", "a file");
  auto profiler = std::make_shared<TraceProfiler>(TraceProfilerOptions{.dirpath = folder / "taken"});
  TinyModule module;
  Trainer trainer(traced(profiler, folder.path()));
  trainer.fit(module, tiny_loader(40));
  EXPECT_EQ(trainer.global_step(), 10);
  EXPECT_TRUE(console.has("trainer.profiler: trace: ")) << console.text();
  EXPECT_TRUE(console.has("taken")) << console.text();
  EXPECT_TRUE(console.has("continues without a trace")) << console.text();
}

TEST(TraceProfiler, AShortRunReportsWhyThereIsNoTrace) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  TinyModule module;
  Trainer(traced(std::make_shared<TraceProfiler>(TraceProfilerOptions{.wait = 50}), folder.path()))
      .fit(module, tiny_loader(8));
  EXPECT_TRUE(console.has("nothing was recorded")) << console.text();
  EXPECT_TRUE(console.has("51 steps")) << console.text();
  EXPECT_TRUE(folder.names().empty());
}

TEST(TraceProfiler, OptionsAreListedAndChecked) {
  EXPECT_EQ(levin::testing::field_count<TraceProfilerOptions>(), field_names<TraceProfilerOptions>().size());
  EXPECT_TRUE(has(error_of([] { TraceProfiler({.active = 0}); }), "TraceProfilerOptions.active: must be >= 1, got 0"));
  EXPECT_TRUE(has(error_of([] { TraceProfiler({.filename = "../x"}); }),
                  "TraceProfilerOptions.filename: \"../x\" leads out of dirpath."));
}

TEST(TraceSchedule, MatchesPyTorch) {
  // torch.profiler.schedule(skip_first=1, wait=2, warmup=1, active=2, repeat=2): off 0-2, warmup 3, active 4-5, off
  // 6-7, warmup 8, active 9-10, then off.
  const TraceSchedule schedule{1, 2, 1, 2, 2};
  std::string phases;
  for (int64_t step = 0; step < 14; ++step) {
    const auto phase = schedule.phase(step);
    phases += phase == TraceSchedule::Phase::off ? '.' : phase == TraceSchedule::Phase::warmup ? 'w' : 'A';
    EXPECT_EQ(schedule.ends_cycle(step), step == 5 || step == 10) << step;
  }
  EXPECT_EQ(phases, "...wAA..wAA...");
  EXPECT_EQ((TraceSchedule{0, 1, 0, 1, 0}).phase(1001), TraceSchedule::Phase::active);
}

TEST(OperatorTable, SubtractsTheCallsWithin) {
  // thread 1: linear 0-100 calls addmm 10-60, which calls copy 20-30; then copy 100-105. thread 2: addmm 0-50.
  const auto totals = operator_totals(
      {{"copy", 1, 20, 10}, {"linear", 1, 0, 100}, {"addmm", 1, 10, 50}, {"copy", 1, 100, 5}, {"addmm", 2, 0, 50}});
  ASSERT_EQ(totals.size(), 3U);
  EXPECT_EQ(totals[0].name, "addmm");
  EXPECT_EQ(totals[0].calls, 2);
  EXPECT_EQ(totals[0].total, 100);
  EXPECT_EQ(totals[0].self, 90);
  EXPECT_EQ(totals[1].name, "linear");
  EXPECT_EQ(totals[1].self, 50);
  EXPECT_EQ(totals[2].self, 15);
  EXPECT_TRUE(has(operator_table(totals, 1), "… and 2 more"));
}

}  // namespace
}  // namespace levin::trace_profiler_test
