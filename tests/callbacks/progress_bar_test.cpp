#include "levin/callbacks/progress_bar.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <regex>
#include <thread>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/early_stopping.h"
#include "support/captured_console.h"
#include "support/terminal.h"
#include "support/tiny_module.h"

namespace levin::progress_bar_test {
namespace {

using namespace test;

std::vector<std::string> lines_of_fit(TrainerOptions options, ProgressBarOptions bar = {}) {
  const CapturedConsole console;
  TinyModule module;
  module.table = {1.0};
  options.callbacks.push_back(ProgressBar(bar));
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(24), tiny_loader(16));
  return console.lines();
}

bool matches(const std::string& line, const std::string& pattern) {
  return std::regex_match(line, std::regex(pattern));
}

TEST(ProgressBar, PrintsALinePerEpochAndWhyTheRunEnded) {
  const auto lines = lines_of_fit(quiet(2, {}));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(matches(lines[0], R"(epoch 0/1: 6 batches in .* \(\d+ it/s\), train_loss [\d.]+, val_loss [\d.]+)"))
      << lines[0];
  EXPECT_TRUE(matches(lines[1], R"(epoch 1/1: 6 batches .*)")) << lines[1];
  EXPECT_TRUE(matches(lines[2], R"(Trained 2 epochs, 12 steps, in .*: max_epochs \(2\) is reached\.)")) << lines[2];
}

TEST(ProgressBar, SaysWhoEndedTheRun) {
  EXPECT_TRUE(has(lines_of_fit(quiet(9, EarlyStopping({.monitor = "v", .patience = 1}))).back(),
                  "EarlyStopping: v did not improve"));
  TrainerOptions options = quiet(-1, {});
  options.max_steps = 8;
  EXPECT_TRUE(has(lines_of_fit(options).back(), "8 steps, in"));
  EXPECT_TRUE(has(lines_of_fit(options).back(), "max_steps (8) is reached"));
  EXPECT_EQ(lines_of_fit(quiet(0, {})).back(), "Nothing to train: max_epochs (0) is reached.");
}

TEST(ProgressBar, WithoutATerminalALineAppearsEveryInterval) {
  const auto lines = lines_of_fit(quiet(1, {}), {.line_interval = Seconds(1e-9)});
  EXPECT_TRUE(matches(lines[2], R"(epoch 0/0: 1/6 batches \([\d.]+ it/s\), \d:\d\d:\d\d left, train_loss .*)"))
      << lines[2];
  EXPECT_TRUE(has(lines[0], "sanity check: 1/2 batches")) << lines[0];
}

TEST(ProgressBar, ReportsATest) {
  const CapturedConsole console;
  TinyModule module;
  Trainer trainer(quiet(1, ProgressBar()));
  trainer.test(module, tiny_loader(16));
  ASSERT_EQ(console.lines().size(), 1U);
  EXPECT_TRUE(matches(console.lines()[0], R"(test: 4 batches in .*, test_loss [\d.]+)")) << console.lines()[0];
}

TEST(ProgressBar, LiveLineShowsEverythingAndFits) {
  const ProgressView view{"Epoch 2/3", 507, 938, 4321.4, std::nullopt, {{"train_loss", 0.4123456}, {"val_loss", 0.39}}};
  // 7 columns are left for the bar; 507 / 938 of 56 eighths are 30: 3 columns and 6 eighths.
  EXPECT_EQ(live_line(view, 93),
            "Epoch 2/3  ███▊      54 %  507/938  4321 it/s  0:00:01 left  train_loss 0.4123  val_loss 0.39");
  // Numbers that do not fit are left out, and never cut.
  EXPECT_EQ(live_line(view, 80), "Epoch 2/3  ████▉       54 %  507/938  4321 it/s  0:00:01 left  train_loss 0.4123");
  EXPECT_EQ(live_line(view, 60), "Epoch 2/3  ████▍      54 %  507/938  4321 it/s  0:00:01 left");
  EXPECT_EQ(live_line({"Epoch 7", 3, std::nullopt, 0.5, std::nullopt, {}}, 80), "Epoch 7  3 batches  2.00 s/it");
  EXPECT_EQ(live_line({"Epoch 1/9", 1, 2, 0.5, 3725.0, {}}, 70),
            "Epoch 1/9  ████       50 %  1/2  2.00 s/it  0:00:02 left (run 1:02:05)");
  EXPECT_EQ(live_line({"Epoch 1/9", 1, 2, 0.5, 3725.0, {}}, 10), "Epoch 1/9   50 %  1/2");
}

// Run by the next test, in a process of its own whose output is a terminal.
TEST(ProgressBar, DISABLED_FitOnATerminal) {
  TinyModule module;
  module.on_training_step = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  Trainer(quiet(1, ProgressBar({.refresh_interval = Seconds(0.001)}))).fit(module, tiny_loader(24), tiny_loader(16));
}

TEST(ProgressBar, DrawsOneLiveLineOnATerminal) {
  if (!terminals_can_be_had()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  int terminal = -1;
  winsize size{24, 100, 0, 0};
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TERM", "xterm", 1);
    ::execl("/proc/self/exe", "callbacks_test", "--gtest_filter=ProgressBar.DISABLED_FitOnATerminal",
            "--gtest_also_run_disabled_tests", nullptr);
    ::_exit(127);
  }
  std::string output;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof buffer)) > 0;)
    output.append(buffer, static_cast<size_t>(got));
  int status = -1;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  EXPECT_EQ(status, 0) << output;
  EXPECT_TRUE(has(output, "\r\x1b[2K")) << output;
  EXPECT_TRUE(has(output, "Epoch 0/0  ")) << output;
  EXPECT_TRUE(has(output, "3/6")) << output;
  EXPECT_TRUE(has(output, "█")) << output;
  EXPECT_TRUE(has(output, "epoch 0/0: 6 batches in")) << output;
}

TEST(ProgressBar, CostsALookAtTheClockPerBatch) {
  ProgressBar bar;
  TinyModule module;
  Trainer trainer(quiet(1, {}));
  bar.on_train_start(trainer, module);
  const at::Tensor loss;
  const Batch batch;
  const std::clock_t start = std::clock();  // of the processor: other programs do not count
  constexpr int64_t kBatches = 1'000'000;
  for (int64_t i = 0; i < kBatches; ++i) bar.on_train_batch_end(trainer, module, loss, batch, i);
  const double nanoseconds = 1e9 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kBatches;
  EXPECT_LT(nanoseconds, 1000);
  RecordProperty("nanoseconds", std::to_string(nanoseconds));
}

}  // namespace
}  // namespace levin::progress_bar_test
