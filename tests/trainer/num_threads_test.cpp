// num_threads: how many threads operators use while a run lasts.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/lambda_callback.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::num_threads_test {
namespace {

using namespace test;

TrainerOptions tuned(int64_t max_epochs, Callbacks callbacks) {
  TrainerOptions options = quiet(max_epochs, std::move(callbacks));
  options.num_threads = "auto";
  return options;
}

/// Sets the number of threads, on any machine, as if no variable had set it; restores it afterwards.
class ThreadsOf {
 public:
  explicit ThreadsOf(int count) : before_(at::get_num_threads()) {
    ::unsetenv("OMP_NUM_THREADS");
    at::set_num_threads(count);
  }
  ~ThreadsOf() { at::set_num_threads(before_); }
  ThreadsOf(const ThreadsOf&) = delete;
  ThreadsOf& operator=(const ThreadsOf&) = delete;

 private:
  int before_;
};

/// Its steps are slow with all numbers of threads but one.
struct Slow : TinyModule {
  explicit Slow(int fast_with) {
    on_training_step = [this, fast_with](int64_t) {
      last = at::get_num_threads();
      seen.insert(last);
      std::this_thread::sleep_for(std::chrono::milliseconds(last == fast_with ? 5 : 25));
    };
  }
  int last = 0;
  std::set<int> seen = {};
};

TEST(NumThreads, AutoKeepsTheNumberWithWhichStepsAreFastest) {
  for (const int best : {1, 2}) {
    const ThreadsOf two(2);
    Slow module(best);
    Trainer(tuned(12, {})).fit(module, tiny_loader(24));
    EXPECT_EQ(module.last, best);
    EXPECT_TRUE(module.seen.contains(2));
    EXPECT_EQ(at::get_num_threads(), 2) << "as before the fit";
  }
}

TEST(NumThreads, AutoIsPrintedOnceWithTheTimes) {
  const ThreadsOf two(2);
  Slow module(1);
  TrainerOptions options = tuned(12, {});
  options.enable_model_summary = true;
  const CapturedConsole console;
  Trainer(options).fit(module, tiny_loader(24));
  const std::string text = console.text();
  const size_t at = text.find("num_threads: auto chose 1 thread (a step takes ");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_NE(text.find("ms with 2", at), std::string::npos) << text;
  EXPECT_NE(text.find("ms with 1", at), std::string::npos) << text;
  EXPECT_EQ(text.find("num_threads", at + 1), std::string::npos) << text;
}

TEST(NumThreads, AutoContinuesWithTheStoredNumberAndMeasuresAgain) {
  const ThreadsOf two(2);
  const TemporaryFolder folder;
  Slow module(1);
  Trainer trainer(tuned(12, {}));
  trainer.fit(module, tiny_loader(24));
  const std::string path = folder.path() + "/run.ckpt";
  trainer.save_checkpoint(path);
  Slow resumed(2);  // a different machine
  int first = 0;
  const auto note_first = [&](Trainer&, LightningModule&, const Batch&, int64_t) {
    if (first == 0) first = at::get_num_threads();
  };
  Trainer(tuned(20, {LambdaCallback({.on_train_batch_start = note_first})})).fit(resumed, tiny_loader(24), {}, path);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(resumed.last, 2);
}

TEST(NumThreads, ANumberHoldsWhileTheRunLasts) {
  const ThreadsOf two(2);
  Slow module(2);
  TrainerOptions options = tuned(12, {});
  options.num_threads = 1;
  Trainer(options).fit(module, tiny_loader(24));
  EXPECT_EQ(module.seen, std::set<int>{1});
  EXPECT_EQ(at::get_num_threads(), 2);
  Slow more(3);
  options.max_epochs = 1;
  options.num_threads = 3;
  Trainer(options).fit(more, tiny_loader(24));
  EXPECT_EQ(more.seen, std::set<int>{3});
  EXPECT_EQ(at::get_num_threads(), 2);
}

TEST(NumThreads, AVariableThatSetsThemFixesThem) {
  const ThreadsOf two(2);
  for (const auto& [share, seen] : std::map<std::string, std::set<int>>{{"", {2}}, {"1", {2}}, {"2", {1, 2}}}) {
    ::setenv("OMP_NUM_THREADS", "2", 1);
    ::setenv("LEVIN_THREAD_SHARE", share.c_str(), 1);  // of the launcher: not a user's choice
    Slow module(1);
    Trainer(tuned(12, {})).fit(module, tiny_loader(24));
    EXPECT_EQ(module.seen, seen) << "\"" << share << "\"";
  }
  ::unsetenv("LEVIN_THREAD_SHARE");
}

TEST(NumThreads, DeterministicRunsKeepTheNumberTheyBeganWith) {
  const ThreadsOf two(2);
  Slow module(1);
  TrainerOptions options = tuned(3, {});
  options.deterministic = true;
  Trainer(options).fit(module, tiny_loader(24));
  EXPECT_EQ(module.seen, std::set<int>{2});
}

TEST(NumThreads, RefusesWhatIsNotANumberOfThreads) {
  TrainerOptions options = tuned(1, {});
  options.num_threads = 0;
  EXPECT_TRUE(has(error_of([&] { Trainer trainer(options); }), "TrainerOptions.num_threads"));
  EXPECT_TRUE(has(error_of([&] { Trainer trainer(options); }), ">= 1, or auto"));
  options.num_threads = "many";
  EXPECT_TRUE(has(error_of([&] { Trainer trainer(options); }), "\"many\""));
}

}  // namespace
}  // namespace levin::num_threads_test
