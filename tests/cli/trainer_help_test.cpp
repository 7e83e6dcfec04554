#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "cli/config_files.h"
#include "levin/cli/commands/help_text.h"
#include "levin/trainer/trainer_options.h"

namespace levin::trainer_help_test {
namespace {

using test::expect_parts;
using testing::lines;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

int64_t columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::string help(const std::string& topic, std::string* problems = nullptr) {
  Problems found;
  const std::string text = trainer_help(topic, describe_options<TrainerOptions>(), 80, found);
  if (problems != nullptr) {
    *problems = lines(found);
  } else {
    EXPECT_TRUE(found.empty()) << lines(found);
  }
  return text;
}

TEST(TrainerHelp, FitsTwoScreensWithALineForEveryOption) {
  const auto all = lines_of(help("trainer"));
  EXPECT_LE(all.size(), 100U);
  for (const auto& line : all) EXPECT_LE(columns(line), 80) << line;
  for (const auto& name : field_names<TrainerOptions>()) {
    EXPECT_EQ(std::count_if(all.begin(), all.end(),
                            [&](const std::string& line) { return line.starts_with("  " + name + "  "); }),
              1)
        << name;
  }
  for (const auto& line : all) EXPECT_NE(line, "Others") << "a new option is in no group of help_text.cpp";
}

TEST(TrainerHelp, ShowsTheMostUsedFirstAndReportsHowToSeeAll) {
  const auto all = lines_of(help("Trainer"));
  expect_parts(all.at(1), {"levin help trainer.NAME"});
  EXPECT_EQ(all.at(2), "How long");
  EXPECT_TRUE(all.at(3).starts_with("  max_epochs  ")) << all.at(3);
}

TEST(TrainerHelp, ListsTheStrategiesAndPrecisions) {
  std::string text = help("trainer");
  for (size_t at = text.find("\n          "); at != std::string::npos; at = text.find("\n          ")) {
    text.replace(at, text.find_first_not_of(' ', at + 1) - at, " ");  // a second line
  }
  expect_parts(text, {"auto, single_device, ddp, fsdp, dp, dp_balanced or ModelParallel",
                      "32-true, 64-true, bf16-true, 16-true, bf16-mixed, 16-mixed", "levin list strategies"});
}

TEST(TrainerHelp, TellsAllAboutOneOption) {
  expect_parts(help("trainer.max_epochs"),
               {"trainer.max_epochs\n", "unset: 1000, or no limit with\n  max_steps or max_time", "type: int or null",
                "default: null", "--trainer.max_epochs=…"});
  EXPECT_EQ(help("TRAINER.Max_Epochs"), help("trainer.max_epochs"));
}

TEST(TrainerHelp, NamesTheNearestOption) {
  std::string problems;
  (void)help("trainer.max_epoch", &problems);
  expect_parts(problems,
               {"the trainer has no option \"max_epoch\". Did you mean \"max_epochs\"?", "levin help trainer"});
}

TEST(TrainerHelp, IsAboutTheTrainerInAnyCase) {
  for (const char* topic : {"trainer", "Trainer", "TRAINER", "trainer.devices", "Trainer.x"})
    EXPECT_TRUE(is_about_trainer(topic)) << topic;
  for (const char* topic : {"trainers", "Timer", ""}) EXPECT_FALSE(is_about_trainer(topic)) << topic;
}

}  // namespace
}  // namespace levin::trainer_help_test
