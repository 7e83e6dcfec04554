// levin tune: its output can be written into the run file, and it creates no other file.
#include "levin/cli/commands/tune.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "cli/config_files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "support/levin_runs.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::tune_test {
namespace {

using test::expect_parts;

const std::string kRun = " --config " + test::source_dir() +
                         "/configs/fashion_mnist.yaml --trainer.limit_train_batches=40 --trainer.accelerator=cpu";

// In a folder of its own: what the tool leaves there is seen.
test::Ran tune(const test::TemporaryFolder& folder, const std::string& arguments) {
  return test::run_levin("tune " + arguments, folder.path());
}

std::pair<int, std::string> output_of(const std::vector<std::string>& arguments) {
  std::string output;
  Console::instance().capture([&](const std::string& line) { output += line + "\n"; });
  const int code = run_tune(arguments, 100);
  Console::instance().capture({});
  return {code, output};
}

TEST(Tune, FindsABatchSizeAndALearningRateAndLeavesOnlyThePlot) {
  const test::TemporaryFolder folder;
  const auto done = tune(folder, kRun +
                                     " --batch_size_finder.max_val=16 --batch_size_finder.steps_per_trial=1"
                                     " --lr_finder.num_training=30 --lr_finder.min_lr 1e-5");
  EXPECT_EQ(done.status, kExitOk) << done.output;
  expect_parts(done.output, {"BatchSizeFinder: 16 samples fit, no more were tried.", "batch size: 16 (configured: 64)",
                             "--data.batch_size=16", "LearningRateFinder: the loss falls most steeply at",
                             "It is not used", "learning rate: "});
  const size_t from = done.output.find("\nlearning rate: ") + 16;
  const std::string rate = done.output.substr(from, done.output.find(". Write", from) - from);
  EXPECT_EQ(rate, short_number(std::stod(rate))) << done.output;
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"lr_find.csv", "lr_find.svg"}));
}

TEST(Tune, DoesOneOfTheTwo) {
  const test::TemporaryFolder folder;
  const auto done =
      tune(folder, "--batch_size" + kRun + " --batch_size_finder.max_val=4 --batch_size_finder.steps_per_trial=1");
  EXPECT_EQ(done.status, kExitOk) << done.output;
  expect_parts(done.output, {"batch size: 4 (configured: 64)"});
  EXPECT_EQ(done.output.find("learning rate"), std::string::npos);
  EXPECT_TRUE(folder.names().empty());
}

TEST(Tune, TellsMistakesAndTriesNothing) {
  const auto [code, output] = output_of({"--batch_size_finder.init_val=0", "--lr_finder.mode=steep", "--model=Nobody"});
  EXPECT_EQ(code, kExitBadConfig);
  expect_parts(output, {"init_val", "must be >= 1, got 0", "lr_finder.mode", "steep", "nothing was tried"});
  expect_parts(output_of({"--lr_finder.mode"}).second, {"--lr_finder.mode: no value follows"});
  expect_parts(output_of({"--lr_finder.moed=linear"}).second, {"moed"});
  const auto nobody = output_of({"--model=Nobody"});
  EXPECT_EQ(nobody.first, kExitBadConfig);
  expect_parts(nobody.second, {"Nobody"});
}

TEST(Tune, HelpListsTheFindersOptions) {
  const std::string output = output_of({"--help"}).second;
  for (const auto& name : field_names<BatchSizeFinderOptions>())
    EXPECT_NE(output.find(name), std::string::npos) << name;
  for (const auto& name : field_names<LearningRateFinderOptions>())
    EXPECT_NE(output.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace levin::tune_test
