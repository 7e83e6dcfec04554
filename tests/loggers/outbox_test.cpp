#include "levin/loggers/outbox.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <memory>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/loggers/mlflow_logger.h"
#include "levin/loggers/prometheus_logger.h"
#include "levin/loggers/send_outbox.h"
#include "levin/loggers/sqlite_logger.h"
#include "support/captured_console.h"
#include "support/error_text.h"
#include "support/field_count.h"
#include "support/temporary_folder.h"
#include "support/wait_until.h"

namespace levin::outbox_test {
namespace {

using test::CapturedConsole;
using test::TemporaryFolder;
using Kind = Delivery::Kind;

OutboxOptions quick() {
  OutboxOptions options;
  options.who = "Someone";
  options.where = "the server X";
  options.first_pause = Seconds(0.001);
  options.longest_pause = Seconds(0.01);
  return options;
}

void push(Outbox& outbox, int count) {
  for (int k = 0; k < count; ++k) outbox.push("\"k\":" + std::to_string(k), 2);
}

TEST(Outbox, DeliversInOrderAndTriesAgainUntilTheServerAnswers) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  std::vector<int64_t> numbers;
  int calls = 0;
  Outbox outbox(folder.path(), quick(), [&](std::span<const SpilledEvent> events, const auto&) -> Delivery {
    if (++calls <= 3) return {Kind::again, 0, "Connection refused."};
    numbers.push_back(events.front().number);
    return {Kind::delivered, 1};
  });
  outbox.start();
  push(outbox, 5);
  const OutboxReport report = outbox.finish(Seconds(30));
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(report.delivered, 10);
  EXPECT_EQ(report.waiting, 0);
  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(console.text(),
            "warning: Someone: the server X cannot be reached: Connection refused. Values are kept in " +
                outbox.path() +
                " and sent when it answers; training continues.\nSomeone: the server X answers again.\n");
}

TEST(Outbox, LeavesOnTheDiskWhatTheServerDoesNotTakeInTime) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  {
    Outbox outbox(folder.path(), quick(), [](auto, const auto&) { return Delivery{Kind::again, 0, "It is away."}; });
    outbox.start();
    push(outbox, 3);
    const OutboxReport report = outbox.finish(Seconds(0.05));
    EXPECT_EQ(report.waiting, 6);
    EXPECT_EQ(report.delivered, 0);
  }
  Outbox later(folder.path(), quick(), [](std::span<const SpilledEvent> events, const auto&) {
    return Delivery{Kind::delivered, events.size()};
  });
  later.start();
  EXPECT_EQ(later.finish(Seconds(30)).delivered, 6);
}

TEST(Outbox, EndsADeliveryThatIsUnderWayWhenTheTimeIsUp) {
  const TemporaryFolder folder;
  Outbox outbox(folder.path(), quick(), [](auto, const std::function<bool()>& cancelled) {
    EXPECT_TRUE(test::wait_until(cancelled));
    return Delivery{Kind::again, 0, "it was cancelled."};
  });
  outbox.start();
  push(outbox, 1);
  EXPECT_EQ(outbox.finish(Seconds(0.05)).waiting, 2);
}

// The end of a run may come between the choice of a pause and its beginning: here, while the failure is reported.
TEST(Outbox, DoesNotSitOutALongPauseAtTheEnd) {
  const TemporaryFolder folder;
  std::promise<void> reported;
  const auto finishing = std::make_shared<std::promise<void>>();
  Console::instance().capture([&, once = finishing->get_future().share()](const std::string& line) {
    if (line.find("cannot be reached") == std::string::npos) return;
    reported.set_value();
    once.wait();
  });
  OutboxOptions options = quick();
  options.first_pause = options.longest_pause = Seconds(60);
  int calls = 0;
  Outbox outbox(folder.path(), options, [&](std::span<const SpilledEvent> events, const auto&) -> Delivery {
    if (++calls == 1) return {Kind::again, 0, "Connection refused."};
    return {Kind::delivered, events.size()};
  });
  outbox.start();
  push(outbox, 1);
  reported.get_future().wait();
  std::atomic<pid_t> thread = 0;
  auto report = std::async(std::launch::async, [&] {
    thread = ::gettid();
    return outbox.finish(Seconds(20));
  });
  EXPECT_TRUE(test::wait_until([&] { return thread != 0 && test::is_blocked(thread); })) << "finish() waits";
  finishing->set_value();
  EXPECT_EQ(report.get().delivered, 2);
  Console::instance().capture({});
}

TEST(Outbox, CountsWhatIsRefusedAndReportsTheFirst) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  Outbox outbox(folder.path(), quick(), [](std::span<const SpilledEvent> events, const auto&) -> Delivery {
    if (events.front().number % 2 == 0) return {Kind::refused, 1, "HTTP status 400: no."};
    return {Kind::delivered, 1};
  });
  outbox.start();
  push(outbox, 6);
  const OutboxReport report = outbox.finish(Seconds(30));
  EXPECT_EQ(report.delivered, 6);
  EXPECT_EQ(report.refused, 6);
  EXPECT_EQ(console.text(),
            "error: Someone: the server X refused 2 values: HTTP status 400: no. Further refusals are counted, and "
            "reported at the end.\n");
}

TEST(Outbox, SendsNothingElseWhenTheServerRefusesTheRun) {
  const TemporaryFolder folder;
  const CapturedConsole console;
  std::atomic<int> calls = 0;
  Outbox outbox(folder.path(), quick(), [&](auto, const auto&) {
    ++calls;
    return Delivery{Kind::halted, 0, "HTTP status 401: who are you?"};
  });
  outbox.start();
  push(outbox, 3);
  const OutboxReport report = outbox.finish(Seconds(30));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(report.waiting, 6);
  EXPECT_EQ(report.problem, "HTTP status 401: who are you?");
  EXPECT_EQ(console.text(),
            "warning: Someone: the server X refuses this run: HTTP status 401: who are you? Values are kept in " +
                outbox.path() + ".\n");
}

TEST(Outbox, NamesAFolderWithoutOne) {
  const TemporaryFolder folder;
  EXPECT_TRUE(outbox_folders(folder.path()).empty());
  EXPECT_EQ(test::error_of([&] { (void)send_outbox(folder.path(), Seconds(1)); }),
            folder.path() +
                " has no mlflow.json, which names the server of the run. Name the folder of a run of "
                "MLFlowLogger.");
}

TEST(MLFlowLogger, KeepsNamesApartThatBecomeTheSame) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  State saved;
  const auto log = [&](const MetricList& metrics, const State& from) {
    MLFlowLogger logger({.tracking_uri = "http://127.0.0.1:1", .save_dir = folder.path()});
    logger.start(folder.path(), /*resume=*/!from.empty());
    logger.own_folder();
    if (!from.empty()) logger.load_state_dict(from);
    logger.log_metrics(metrics, {1, 1.0});
    saved = logger.state_dict();
  };
  log({{"a,b", 1}, {"a;b", 2}, {"a_b", 3}}, {});
  EXPECT_TRUE(console.has("\"a,b\"; it is sent as \"a_b\"")) << console.text();
  EXPECT_TRUE(console.has("\"a;b\"; it is sent as \"a_b_2\"")) << console.text();
  EXPECT_TRUE(console.has("a different name is sent as \"a_b\"; \"a_b\" is sent as \"a_b_3\"")) << console.text();
  EXPECT_EQ(saved.get<ConfigNode>("names").find("a;b")->text, "a_b_2");
  log({{"a;b", 5}}, saved);  // the run continues, and logs the second one first
  EXPECT_EQ(saved.get<ConfigNode>("names").find("a;b")->text, "a_b_2");
}

TEST(MLFlowLogger, ResumesWhereAnEventIsDamaged) {
  const TemporaryFolder folder;
  const test::CapturedConsole console;
  State saved;
  const auto log = [&](bool resume) {
    MLFlowLogger logger(
        {.tracking_uri = "http://127.0.0.1:1", .save_dir = folder.path(), .finish_timeout = Seconds(0)});
    logger.start(folder.path(), resume);
    logger.own_folder();
    if (resume) logger.load_state_dict(saved);
    logger.log_metrics({{"a", 1}}, {1, 1.0});
    saved = logger.state_dict();
    return logger.log_dir();
  };
  const std::string queue = log(false) + "/outbox.jsonl";
  const int64_t events = saved.get<int64_t>("events");
  for (const char* kind : {"3", "[]", "null", "{\"k\": 1}"}) {
    std::ofstream(queue, std::ios::app) << R"({"n":)" << saved.get<int64_t>("events") + 1 << R"(,"v":1,"k":)" << kind
                                        << "}\n";
    log(true);
    EXPECT_GT(saved.get<int64_t>("events"), events) << kind;
  }
}

TEST(LoggerOptions, ListEveryField) {
  EXPECT_EQ(levin::testing::field_count<MLFlowLoggerOptions>(), field_names<MLFlowLoggerOptions>().size());
  EXPECT_EQ(levin::testing::field_count<SQLiteLoggerOptions>(), field_names<SQLiteLoggerOptions>().size());
  EXPECT_EQ(levin::testing::field_count<PrometheusLoggerOptions>(), field_names<PrometheusLoggerOptions>().size());
}

}  // namespace
}  // namespace levin::outbox_test
