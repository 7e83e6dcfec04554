#include "levin/callbacks/spike_detection.h"

#include <gtest/gtest.h>

#include <limits>

#include "callbacks/resume.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/field_count.h"

namespace levin::spike_detection_test {
namespace {

using namespace test;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Its losses, one per step, are given; it leaves out what SpikeDetection says.
struct Scripted : TinyModule {
  explicit Scripted(std::vector<double> values) : losses(std::move(values)) {}
  at::Tensor training_step(const Batch&, int64_t batch_idx) override {
    used.emplace_back(current_epoch(), batch_idx);
    const auto index = static_cast<size_t>(current_epoch() * trainer().num_training_batches() + batch_idx);
    return layer->weight.sum() * 0 + losses.at(index);
  }
  std::vector<double> losses;
  std::vector<std::pair<int64_t, int64_t>> used;
};

// 6 batches an epoch; the error that ended the run, "" if none.
std::string run(Scripted& module, SpikeDetectionOptions options, const std::string& folder, int64_t accumulate = 1,
                NonFiniteLoss nonfinite = NonFiniteLoss::stop) {
  TrainerOptions trainer_options = quiet(2, SpikeDetection(options), folder);
  trainer_options.accumulate_grad_batches = accumulate;
  trainer_options.nonfinite_loss = nonfinite;
  return error_of([&] { Trainer(trainer_options).fit(module, tiny_loader(24)); });
}

std::vector<double> losses_with(std::vector<std::pair<size_t, double>> changes) {
  std::vector<double> losses(12, 1.0);
  for (const auto& [index, value] : changes) losses[index] = value;
  return losses;
}

TEST(SpikeDetection, EndsARunAndLeavesTheBatchOutOfTheNext) {
  const TemporaryFolder folder;
  Scripted module(losses_with({{8, 4.0}}));
  const std::string error = run(module, {}, folder.path());
  EXPECT_TRUE(has(error, "the training loss is 4.0") && has(error, "epoch 1, batch 2") && has(error, "global step 9") &&
              has(error, "mean of the last 8 is 1.0") && has(error, folder / "skip_batches.json") &&
              has(error, "they are left out"))
      << error;
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"skip_batches.json"}));
  const CapturedConsole console;
  Scripted again(module.losses);
  EXPECT_EQ(run(again, {}, folder.path()), "");
  EXPECT_TRUE(console.has("names 2 batches to leave out"));
  EXPECT_EQ(again.used.size(), 10U);
  for (const auto& [epoch, batch] : again.used) EXPECT_FALSE(epoch == 1 && (batch == 1 || batch == 2));
}

TEST(SpikeDetection, AddsToWhatTheFileNames) {
  const TemporaryFolder folder;
  Scripted module(losses_with({{3, 9.0}, {10, 9.0}}));
  EXPECT_TRUE(has(run(module, {}, folder.path()), "epoch 0, batch 3"));
  EXPECT_TRUE(has(run(module, {}, folder.path()), "epoch 1, batch 4"));
  EXPECT_EQ(run(module, {}, folder.path()), "");
}

TEST(SpikeDetection, JudgesByItsTolerances) {
  const TemporaryFolder folder;
  const auto spikes = [&](SpikeDetectionOptions options, double value) {
    std::filesystem::remove(folder / "skip_batches.json");
    Scripted module(losses_with({{5, value}}));
    return has(run(module, options, folder.path()), "epoch 0, batch 5");
  };
  EXPECT_FALSE(spikes({}, 2.9));  // 1.9 from the mean of 1: less than rtol 2
  EXPECT_TRUE(spikes({}, 3.0));
  EXPECT_FALSE(spikes({.atol = 5.0}, 5.0));  // both must hold
  EXPECT_TRUE(spikes({.atol = 5.0}, 6.0));
  EXPECT_TRUE(spikes({.atol = 0.5, .rtol = std::nullopt}, 1.6));
  EXPECT_FALSE(spikes({.atol = 0.5, .rtol = std::nullopt}, -9.0));  // an improvement is not a spike
  EXPECT_TRUE(spikes({.mode = MonitorMode::max}, -9.0));
  EXPECT_FALSE(spikes({.mode = MonitorMode::max}, 9.0));
  EXPECT_FALSE(spikes({.warmup = 6}, 9.0));
  EXPECT_TRUE(spikes({.warmup = 5}, 9.0));
}

TEST(SpikeDetection, ComparesWithTheMeanOfItsWindow) {
  const TemporaryFolder folder;
  std::vector<double> losses{9, 9, 9, 9, 1, 1, 4, 1, 1, 1, 1, 1};
  Scripted module(losses);
  EXPECT_TRUE(has(run(module, {.window = 2}, folder.path()), "epoch 1, batch 0"));
  EXPECT_EQ(run(module, {.window = 6, .exclude_batches_path = folder / "other.json"}, folder.path()), "");
}

TEST(SpikeDetection, NanIsASpikeUnlessConfiguredOtherwise) {
  const TemporaryFolder folder;
  Scripted module(losses_with({{4, kNan}}));
  const std::string error = run(module, {}, folder.path());
  EXPECT_TRUE(has(error, "the loss is nan")) << error;  // the trainer stops before the update
  Scripted again(module.losses);
  EXPECT_EQ(run(again, {}, folder.path()), "");
  EXPECT_EQ(again.used.size(), 10U);
  Scripted ignored(module.losses);
  EXPECT_TRUE(has(run(ignored, {.exclude_batches_path = folder / "a"}, "", 1, NonFiniteLoss::ignore),
                  "SpikeDetection: the training loss is .nan"));
  Scripted other(losses_with({{4, kNan}, {8, 9.0}}));
  EXPECT_TRUE(
      has(run(other, {.exclude_batches_path = folder / "b", .finite_only = false}, "", 1, NonFiniteLoss::ignore),
          "epoch 1, batch 2"));
  EXPECT_TRUE(std::filesystem::exists(folder / "b/skip_batches.json"));
}

// 6 batches in windows of 4 and 2: the loss that hooks see is divided by 4, then by 2.
TEST(SpikeDetection, SeesThroughAccumulation) {
  const TemporaryFolder folder;
  Scripted module(losses_with({}));
  EXPECT_EQ(run(module, {.rtol = 0.5}, folder.path(), 4), "");
  Scripted other(losses_with({{4, 1.6}}));
  EXPECT_TRUE(has(run(other, {.rtol = 0.5}, folder.path(), 4), "loss is 1.6"));
}

TEST(SpikeDetection, ContinuesItsWindowAfterARestart) {
  ResumeTest test;
  const TemporaryFolder folder;
  test.epochs = 3;
  test.callback = [&] {
    return std::make_shared<SpikeDetection>(
        SpikeDetectionOptions{.window = 4, .rtol = 1e6, .exclude_batches_path = folder.path()});
  };
  test.cut_after(6);
  test.cut_after(9);
}

TEST(SpikeDetection, ReadsListsOfIndicesAndNamesWhatItCannotRead) {
  const TemporaryFolder folder;
  const auto text = [&](const std::string& content) {
    write_file_durably(folder / "skip_batches.json", content);
    Scripted module(losses_with({}));
    const std::string error = run(module, {}, folder.path());
    return error.empty() ? std::to_string(module.used.size()) : error;
  };
  EXPECT_EQ(text("[2, 3]"), "8");  // in both epochs
  EXPECT_EQ(text("[{\"epoch\": 1, \"batch_idx\": 0}]"), "11");
  for (const auto& [content, what] : std::vector<std::pair<std::string, std::string>>{
           {"[2,", "it is not JSON"},
           {"{}", "it holds no list"},
           {"[" + std::string(100'000, '[') + std::string(100'000, ']') + "]", "it is not JSON"},
           {"[\"a\"]", "an item is \"a\""},
           {"[-1]", "an item is -1"},
           {"[{\"epoch\": 1}]", "an item is {\"epoch\":1}"},
           {"[{\"epoch\": 1.5, \"batch_idx\": 0}]", "1.5"}}) {
    const std::string error = text(content);
    EXPECT_TRUE(has(error, folder / "skip_batches.json") && has(error, what) && has(error, "Fix the file")) << error;
  }
}

TEST(SpikeDetection, ReportsItWhenItCannotWriteTheFile) {
  const TemporaryFolder folder;
  write_file_durably(folder / "file", "in the way");
  Scripted module(losses_with({{4, 9.0}}));
  const std::string error = run(module, {.exclude_batches_path = folder / "file/x.json"}, folder.path());
  EXPECT_TRUE(has(error, "loss is 9.0") && has(error, "could not be written down") && has(error, folder / "file"))
      << error;
}

TEST(SpikeDetection, RefusesOptionsThatMakeNoSense) {
  std::string error = error_of([] { SpikeDetection({.window = 0, .warmup = 0, .atol = -1.0, .rtol = std::nullopt}); });
  EXPECT_TRUE(has(error, "window: must be >= 1, got 0") && has(error, "warmup") && has(error, "atol: must be >= 0"))
      << error;
  error = error_of([] { SpikeDetection({.rtol = std::nullopt}); });
  EXPECT_TRUE(has(error, "atol and rtol are both null") && has(error, "Set one")) << error;
  EXPECT_EQ(testing::field_count<SpikeDetectionOptions>(), field_names<SpikeDetectionOptions>().size());
}

}  // namespace
}  // namespace levin::spike_detection_test
