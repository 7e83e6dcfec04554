// The classes that docs/extending.md shows, as a reader would copy them.
#include <gtest/gtest.h>

#include <sstream>

#include "docs_extending.h"  // made of that page by docs.py
#include "levin/core/files/files.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::extending_test {
namespace {

using namespace test;

/// A fit of 2 steps per epoch with the page's logger, which continues where the previous logger stopped.
void fit(TinyModule& module, const std::string& folder, int64_t epochs) {
  TrainerOptions options;
  options.max_epochs = epochs;
  options.log_every_n_steps = 1;
  options.logger = {Lines()};
  options.default_root_dir = folder;
  options.auto_resume = true;
  options.callbacks = {ModelCheckpoint({.dirpath = folder + "/checkpoints", .save_last = true})};
  options.enable_progress_bar = options.enable_model_summary = false;
  Trainer trainer(options);
  trainer.fit(module, tiny_loader(8));
}

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// The steps at which a loss was written.
std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> steps;
  for (const std::string& line : lines_of(path)) {
    if (line.find(" train_loss ") != std::string::npos) steps.push_back(std::stoll(line));
  }
  return steps;
}

TEST(LoggerOfThePage, WritesALineForEachValue) {
  const TemporaryFolder folder;
  TinyModule module;
  fit(module, folder / "run", 2);
  const std::string file = folder / "run/metrics.txt";
  EXPECT_EQ(steps_of(file), (std::vector<int64_t>{0, 1, 2, 3}));
  TinyModule fresh;  // the first value is its loss
  Batch batch;
  const auto loader = tiny_loader(8);
  loader->start(0, 0);
  ASSERT_TRUE(loader->next(batch));
  const double loss = torch::mse_loss(fresh.forward(batch[0]), batch[1]).item<double>();
  std::vector<std::string> of_first_step;
  for (const std::string& line : lines_of(file)) {
    if (line.starts_with("0 train_loss ")) of_first_step.push_back(line);
  }
  ASSERT_EQ(of_first_step.size(), 1U);
  EXPECT_NEAR(std::stod(of_first_step[0].substr(13)), loss, 1e-4);
}

TEST(LoggerOfThePage, RemovesWhatCameAfterTheCheckpointThatARunResumesFrom) {
  const TemporaryFolder folder;
  TinyModule module;
  fit(module, folder / "run", 2);
  const std::string file = folder / "run/metrics.txt";
  std::ofstream(file, std::ios::app) << "4 train_loss 1\n5 lost with a power cut\n";
  TinyModule again;
  fit(again, folder / "run", 3);
  EXPECT_EQ(steps_of(file), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read_file(file).find("power cut"), std::string::npos);
}

TEST(MetricOfThePage, IsTheFractionOfWrongSamplesOverBatches) {
  ErrorRate rate;
  rate.update(torch::tensor({{1., 0.}, {0., 1.}, {0., 1.}}), torch::tensor({0, 0, 1}));
  rate.update(torch::tensor({{0., 1.}}), torch::tensor({0}));
  EXPECT_EQ(rate.compute().item<double>(), 0.5);
  rate.reset();
  rate.update(torch::tensor({{0., 1.}}), torch::tensor({1}));
  EXPECT_EQ(rate.compute().item<double>(), 0);
}

TEST(StrategyOfThePage, RoundsGradientsToFloat16) {
  DDP strategy;
  strategy.use(std::make_unique<HalfGradients>());
  strategy.ranks().join(World());
  torch::Tensor weight = torch::ones({1}).set_requires_grad(true);
  strategy.set_up({.parameters = {{"weight", weight}}}, /*training=*/true);
  RankFlags stop;
  stop.add(RankFlag::stop);
  EXPECT_TRUE(strategy.gradients().backward((weight * (1 + 0x1p-12)).sum(), /*sync=*/true, stop).has(RankFlag::stop));
  EXPECT_EQ(weight.grad().item<double>(), 1) << "float16 has 11 bits";
  strategy.tear_down();
}

}  // namespace
}  // namespace levin::extending_test
