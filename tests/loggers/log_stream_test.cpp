#include "levin/loggers/log_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "levin/core/options/error.h"
#include "support/captured_console.h"

namespace levin::log_stream_test {
namespace {

using test::CapturedConsole;

// Keeps what it gets; waits at a gate, if it has one, before it takes a row.
class Recorder final : public Logger {
 public:
  void start(const std::string&, bool) override {}
  [[nodiscard]] uint32_t takes() const override { return kinds; }
  void log_metrics(const MetricList& metrics, const LogPoint& at) override {
    if (gate.valid()) gate.wait();
    if (!failure.empty()) throw Error(failure);
    for (const auto& [name, value] : metrics) seen.push_back(name + "=" + std::to_string(static_cast<int>(value)));
    points.push_back(at);
    thread = std::this_thread::get_id();
  }
  void log_system(const MetricList& figures, const LogPoint&) override { seen.push_back("system " + figures[0].first); }
  void log_text(const std::string& name, const std::string& text, const LogPoint&) override {
    seen.push_back(name + ": " + text);
  }
  void save() override { seen.push_back("save"); }

  uint32_t kinds = LogKind::scalars | LogKind::text;
  std::shared_future<void> gate = {};
  std::string failure = "";
  std::vector<std::string> seen = {};
  std::vector<LogPoint> points = {};
  std::thread::id thread = {};
};

using Seen = std::vector<std::string>;

MetricRow row(const MetricList& list) {
  std::vector<std::string> names;
  MetricRow row;
  for (const auto& [name, value] : list) {
    names.push_back(name);
    row.values.push_back(value);
  }
  row.names = std::make_shared<const std::vector<std::string>>(std::move(names));
  return row;
}

TEST(LogStream, HandsValuesToEveryLoggerInOrderOnAThreadOfItsOwn) {
  const auto a = std::make_shared<Recorder>();
  const auto b = std::make_shared<Recorder>();
  LogStream stream({a, b});
  stream.log_metrics(row({{"loss", 3}, {"epoch", 1}}), 7);
  stream.log(LogKind::text, 8, 0, [](Logger& logger, const LogPoint& at) { logger.log_text("note", "hello", at); });
  stream.each([](Logger& logger) { logger.save(); });
  stream.log_metrics(row({{"loss", 2}}), 9);
  stream.drain();
  EXPECT_EQ(a->seen, (Seen{"loss=3", "epoch=1", "note: hello", "save", "loss=2"}));
  EXPECT_EQ(b->seen, a->seen);
  EXPECT_NE(a->thread, std::this_thread::get_id());
  EXPECT_EQ(a->points[0].step, 7);
  EXPECT_GT(a->points[0].time, 1.6e9);  // of the calendar
}

TEST(LogStream, SharedNamesKeepTheirOwnValuesAndTheEpoch) {
  const auto logger = std::make_shared<Recorder>();
  LogStream stream({logger});
  MetricRow shared = row({{"loss", 3}, {"lr", 1}});
  stream.log_metrics(shared, 0);
  shared.values = {4, 5};
  stream.log_metrics(shared, 1);
  shared.epoch = 2;
  stream.log_metrics(shared, 2);
  stream.log_metrics(row({{"other", 6}}), 3);
  shared.epoch.reset();
  stream.log_metrics(shared, 4);
  stream.drain();
  EXPECT_EQ(logger->seen,
            (Seen{"loss=3", "lr=1", "loss=4", "lr=5", "loss=4", "lr=5", "epoch=2", "other=6", "loss=4", "lr=5"}));
}

TEST(LogStream, GivesEachLoggerTheKindsThatItTakes) {
  const auto scalars = std::make_shared<Recorder>();
  const auto system = std::make_shared<Recorder>();
  scalars->kinds = static_cast<uint32_t>(LogKind::scalars);
  system->kinds = LogKind::system | LogKind::text;
  LogStream stream({scalars, system});
  EXPECT_TRUE(stream.takes(LogKind::text));
  EXPECT_FALSE(stream.takes(LogKind::images));
  stream.log_metrics(row({{"loss", 3}}), 0);
  stream.log_system({{"load", 4}}, 0);
  stream.log(LogKind::text, 0, 0, [](Logger& logger, const LogPoint& at) { logger.log_text("note", "x", at); });
  stream.drain();
  EXPECT_EQ(scalars->seen, (Seen{"loss=3", "load=4"}));
  EXPECT_EQ(system->seen, (Seen{"system load", "note: x"}));
}

TEST(LogStream, DoesNotWaitForALoggerThatHangs) {
  std::promise<void> open;
  const auto slow = std::make_shared<Recorder>();
  slow->gate = open.get_future().share();
  LogStream stream({slow});
  for (int k = 0; k < 10000; ++k) stream.log_metrics(row({{"loss", k}}), k);  // would hang here
  EXPECT_TRUE(slow->seen.empty());
  open.set_value();
  stream.drain();
  EXPECT_EQ(slow->seen.size(), 10000U);
  EXPECT_EQ(slow->seen.back(), "loss=9999");
}

TEST(LogStream, CountsAndReportsWhatAFullQueueDrops) {
  const CapturedConsole console;
  std::promise<void> open;
  const auto slow = std::make_shared<Recorder>();
  slow->gate = open.get_future().share();
  LogStream stream({slow}, 1000);
  for (int k = 0; k < 100; ++k) stream.log_metrics(row({{"loss", k}}), k);
  EXPECT_GT(stream.dropped(), 50);
  EXPECT_NE(console.text().find("the queue of the loggers is full: values are dropped until the loggers catch up"),
            std::string::npos);
  bool ran = false;
  stream.then([&] { ran = true; });  // never dropped
  open.set_value();
  stream.drain();
  EXPECT_TRUE(ran);
  EXPECT_EQ(static_cast<int64_t>(slow->seen.size()) + stream.dropped(), 100);
  stream.log_metrics(row({{"loss", 7}}), 100);
  stream.drain();
  EXPECT_EQ(slow->seen.back(), "loss=7");
}

TEST(LogStream, RethrowsALoggersExceptionInTheNextCallAndServesTheOthers) {
  const auto bad = std::make_shared<Recorder>();
  const auto good = std::make_shared<Recorder>();
  bad->failure = "the server has said no";
  LogStream stream({bad, good});
  stream.log_metrics(row({{"loss", 1}}), 0);
  std::string message;
  try {
    stream.drain();
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_TRUE(message.ends_with("Recorder: the server has said no")) << message;
  EXPECT_EQ(good->seen, Seen{"loss=1"});
  bad->failure = "";
  stream.log_metrics(row({{"loss", 2}}), 1);  // it was thrown once
  stream.drain();
  EXPECT_EQ(bad->seen, Seen{"loss=2"});
}

TEST(LogStream, WritesWhatIsLeftBeforeItEnds) {
  const auto logger = std::make_shared<Recorder>();
  {
    LogStream stream({logger});
    for (int k = 0; k < 100; ++k) stream.log_metrics(row({{"loss", k}}), k);
  }
  EXPECT_EQ(logger->seen.size(), 100U);
}

TEST(LogStream, PrintsAnExceptionThatNobodyCanReceive) {
  const CapturedConsole console;
  const auto bad = std::make_shared<Recorder>();
  bad->failure = "the disk is gone";
  {
    LogStream stream({bad});
    stream.log_metrics(row({{"loss", 1}}), 0);
  }
  EXPECT_NE(console.text().find("the disk is gone"), std::string::npos);
}

}  // namespace
}  // namespace levin::log_stream_test
