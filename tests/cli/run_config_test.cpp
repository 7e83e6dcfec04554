#include "levin/cli/config/run_config.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"
#include "levin/yaml/yaml_file.h"

namespace levin::run_config_test {
namespace {

using test::expect_parts;
using testing::lines;

RunConfig read(const std::string& text) {
  Problems problems;
  RunConfig run = read_run_config(read_yaml_text(text, "run.yaml", problems), problems);
  EXPECT_TRUE(problems.empty()) << lines(problems);
  return run;
}

std::string errors(const std::string& text) {
  Problems problems;
  (void)read_run_config(read_yaml_text(text, "run.yaml", problems), problems);
  return lines(problems);
}

TEST(RunConfig, ReadsEveryKey) {
  const RunConfig run = read(
      "seed_everything: 42\n"
      "trainer: {max_epochs: 3}\n"
      "model: {class_path: Classifier, init_args: {hidden: 256}}\n"
      "data: FashionMnist\n"
      "optimizer: {class_path: AdamW, init_args: {lr: 0.1}, no_decay: true, "
      "param_groups: [{params: [head.*], lr: 0.5}, {params: ['*.bias', norm.*], weight_decay: 0}]}\n"
      "lr_scheduler: {class_path: StepLR, init_args: {step_size: 2}, interval: step, frequency: 3, monitor: loss, "
      "strict: false, name: lr}\n"
      "ckpt_path: last\n");
  EXPECT_EQ(run.seed(), 42);
  EXPECT_EQ(run.trainer.find("max_epochs")->text, "3");
  EXPECT_EQ(run.model->class_path, "Classifier");
  EXPECT_EQ(run.model->init_args.find("hidden")->text, "256");
  EXPECT_EQ(run.data->class_path, "FashionMnist");
  EXPECT_EQ(run.optimizer->spec().class_path, "AdamW");
  EXPECT_TRUE(run.optimizer->no_decay);
  ASSERT_EQ(run.optimizer->param_groups.size(), 2u);
  EXPECT_EQ(run.optimizer->param_groups[0].lr, 0.5);
  EXPECT_FALSE(run.optimizer->param_groups[0].weight_decay);
  EXPECT_EQ(run.optimizer->param_groups[1].params, (std::vector<std::string>{"*.bias", "norm.*"}));
  EXPECT_EQ(run.optimizer->param_groups[1].weight_decay, 0.0);
  EXPECT_EQ(run.lr_scheduler->spec().class_path, "StepLR");
  EXPECT_EQ(run.lr_scheduler->spec().init_args.find("step_size")->text, "2");
  EXPECT_EQ(run.lr_scheduler->spec().mark.str(), "run.yaml:6:28");
  EXPECT_EQ(run.lr_scheduler->interval, Interval::step);
  EXPECT_EQ(run.lr_scheduler->frequency, 3);
  EXPECT_EQ(run.lr_scheduler->monitor, "loss");
  EXPECT_FALSE(run.lr_scheduler->strict);
  EXPECT_EQ(run.lr_scheduler->name, "lr");
  EXPECT_EQ(run.ckpt_path, "last");
}

TEST(RunConfig, DefaultsAreLightnings) {
  const RunConfig run = read("");
  EXPECT_EQ(run.seed(), 0);
  EXPECT_FALSE(run.model || run.data || run.optimizer || run.lr_scheduler || run.ckpt_path);
  const RunConfig scheduled = read("lr_scheduler: StepLR\noptimizer: null\n");
  EXPECT_FALSE(scheduled.lr_scheduler->interval.has_value());
  EXPECT_EQ(scheduled.lr_scheduler->frequency, 1);
  EXPECT_TRUE(scheduled.lr_scheduler->strict);
  EXPECT_FALSE(scheduled.optimizer.has_value());
}

TEST(RunConfig, SeedTrueIsZeroAndFalseAndNullSetNone) {
  EXPECT_EQ(read("seed_everything: true").seed(), 0);
  EXPECT_EQ(read("seed_everything: 0").seed(), 0);
  EXPECT_EQ(read("seed_everything: 4294967295").seed(), 4294967295);
  EXPECT_EQ(read("seed_everything: false").seed(), std::nullopt);
  EXPECT_EQ(read("seed_everything: null").seed(), std::nullopt);
  expect_parts(errors("seed_everything: -1"), {"run.yaml:1:18: seed_everything: must be from 0 to 4294967295, got -1"});
  expect_parts(errors("seed_everything: 42.0"), {"seed_everything: expected int or bool, got 42.0"});
}

TEST(RunConfig, TellsAllMistakesAtOnce) {
  const std::string text = errors(
      "trainr: {}\n"
      "trainer: [1]\n"
      "model: {class_pth: X}\n"
      "data: {init_args: {}}\n"
      "lr_scheduler: {class_path: StepLR, interval: steps, frequency: 0, when: x}\n"
      "ckpt_path: [a]\n");
  expect_parts(text, {"run.yaml:1:1: trainr: unknown key \"trainr\". Did you mean \"trainer\"?",
                      "run.yaml:2:10: trainer: expected a map, got a list",
                      "run.yaml:3:9: model.class_pth: unknown key", "run.yaml:4:7: data: class_path is missing",
                      "run.yaml:5:46: lr_scheduler.interval: unknown value steps. Known: epoch, step.",
                      "run.yaml:5:64: lr_scheduler.frequency: must be >= 1, got 0", "lr_scheduler.when: unknown key",
                      "run.yaml:6:12: ckpt_path: expected a string, got a list"});
}

TEST(RunConfig, ASchedulerNeedsAClass) {
  expect_parts(errors("lr_scheduler: {interval: step}"), {"run.yaml:1:15: lr_scheduler: class_path is missing"});
  expect_parts(errors("lr_scheduler: [a]"), {"lr_scheduler: expected a class name"});
  expect_parts(errors("optimizer: {param_groups: [{lr: 1, lrr: 2}]}"),
               {"optimizer.param_groups[0].params: must be set", "optimizer.param_groups[0].lrr: unknown key"});
  expect_parts(
      errors("optimizer: {no_decay: true}"),
      {"optimizer: class_path is missing: write {class_path: NAME, init_args: {…}, no_decay: …, param_groups: …}"});
  expect_parts(errors("model: ''"), {"model: expected a class name, got \"\""});
}

TEST(RunConfig, WritesWhatReadsBackToTheSame) {
  for (const std::string text : {"", "seed_everything: false\nmodel: A\nlr_scheduler: B\n",
                                 "model: {class_path: A, init_args: {x: '5', y: 5}}\ntrainer: {a: [1, {b: c}]}\n"}) {
    const ConfigNode once = write_options(read(text));
    const ConfigNode twice = write_options(read(to_yaml(once)));
    EXPECT_TRUE(once.same_as(twice)) << to_yaml(once) << "and\n" << to_yaml(twice);
  }
}

TEST(RunConfig, NothingInTheEnvironmentOrTheTextIsExpanded) {
  ::setenv("LEVIN_TEST_VALUE", "expanded", 1);
  EXPECT_EQ(read("ckpt_path: ${LEVIN_TEST_VALUE}").ckpt_path, "${LEVIN_TEST_VALUE}");
  ::unsetenv("LEVIN_TEST_VALUE");
}

}  // namespace
}  // namespace levin::run_config_test
