#include "levin/cli/commands/help_text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/config_files.h"
#include "levin/trainer/trainer_options.h"

namespace levin::help_text_test {
namespace {

using test::expect_parts;
using testing::lines;

struct StopOptions {
  std::string monitor = "val_loss";
  int64_t patience = 3;
  std::vector<double> marks = {0.5, 1.0};
  static auto fields() {
    using O = StopOptions;
    return levin::fields(
        field("monitor", &O::monitor, "metric to watch, by the name it was logged under in the validation step"),
        field("patience", &O::patience, "bad validations in a row before the run stops").min(1),
        field("marks", &O::marks, "levels"));
  }
};

std::vector<ClassKind> kinds() {
  ClassEntry stop;
  stop.name = "EarlyStopping";
  stop.doc = "Stops when a metric no longer gets better.";
  stop.describe = &describe_options<StopOptions>;
  ClassEntry timer;
  timer.name = "Timer";
  timer.doc = "Stops after a span of time.";
  timer.describe = &describe_options<NoOptions>;
  return {{"callbacks", "trainer.callbacks", {stop, timer}}, {"models", "model", {}}};
}

size_t widest_line(const std::string& text) {
  std::istringstream in(text);
  size_t widest = 0;
  for (std::string line; std::getline(in, line);) {
    size_t columns = 0;
    for (char c : line) columns += (c & 0xc0) != 0x80;
    widest = std::max(widest, columns);
  }
  return widest;
}

TEST(HelpText, DescribesEveryOptionOfAClassInColumns) {
  Problems problems;
  EXPECT_EQ(class_help("lightning.pytorch.callbacks.EarlyStopping", kinds(), 80, problems),
            "EarlyStopping: Stops when a metric no longer gets better.\n"
            "In a run file at trainer.callbacks: {class_path: EarlyStopping, init_args: {…}}\n"
            "\n"
            "  option    type           default     meaning\n"
            "  monitor   string         val_loss    metric to watch, by the name it was\n"
            "                                       logged under in the validation step\n"
            "  patience  int            3           bad validations in a row before the run\n"
            "                                       stops; >= 1\n"
            "  marks     list of float  [0.5, 1.0]  levels\n");
  EXPECT_TRUE(problems.empty());
  expect_parts(class_help("Timer", kinds(), 80, problems), {"Timer: Stops after", "no options"});
}

TEST(HelpText, FitsTheTerminal) {
  Problems problems;
  for (const int width : {40, 60, 80, 120, 200}) {
    EXPECT_LE(widest_line(options_table(describe_options<StopOptions>(), width)), static_cast<size_t>(width));
    EXPECT_LE(widest_line(list_text("", kinds(), width, problems)), static_cast<size_t>(width));
  }
}

// Their names and types would leave a column of 20 for the meaning.
TEST(HelpText, PutsTheMeaningBelowWhereColumnsWouldLeaveTooLittle) {
  const std::vector<FieldInfo> trainer = describe_options<TrainerOptions>();
  const std::string text = options_table(trainer, 80);
  EXPECT_LE(widest_line(text), 80U);
  expect_parts(
      text,
      {"  max_epochs (int or null, default null)\n      stop after this many epochs; -1: no limit; unset: 1000, or",
       "  reload_dataloaders_every_n_epochs (int, default 0)\n"});
  const std::string wide = options_table(trainer, 160);
  EXPECT_LE(widest_line(wide), 160U);
  expect_parts(wide, {"  option  ", "  reload_dataloaders_every_n_epochs  int  "});
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 3 * std::ssize(trainer) + 20) << "mostly two lines each";
}

TEST(HelpText, UnknownNamesSuggestTheNearest) {
  Problems problems;
  EXPECT_EQ(class_help("EarlyStoping", kinds(), 80, problems), "");
  EXPECT_EQ(list_text("calbacks", kinds(), 80, problems), "");
  ASSERT_EQ(problems.size(), 2u);
  expect_parts(problems.lines()[0],
               {"unknown class \"EarlyStoping\"", "Did you mean \"EarlyStopping\"?", "Known: EarlyStopping, Timer"});
  expect_parts(problems.lines()[1], {"unknown kind \"calbacks\"", "Did you mean \"callbacks\"?"});
}

TEST(HelpText, ListsOneKindOrAll) {
  Problems problems;
  EXPECT_EQ(list_text("callback", kinds(), 80, problems),
            "callbacks (trainer.callbacks)\n"
            "  EarlyStopping  Stops when a metric no longer gets better.\n"
            "  Timer          Stops after a span of time.\n");
  expect_parts(list_text("", kinds(), 80, problems), {"callbacks (trainer.callbacks)", "models (model)\n  none"});
  EXPECT_TRUE(problems.empty());
}

ClassEntry model(const std::string& name, const std::string& file) {
  ClassEntry entry;
  entry.name = name;
  entry.doc = "a model";
  entry.file = file;
  return entry;
}

TEST(HelpText, ListsTheUsersClassesBeforeLevinsAndItsExamples) {
  const ClassKind models{"models",
                         "model",
                         {model("ThousandLayers", "/levin/examples/models/articles/thousand_layers.cpp"),
                          model("GPT", "/levin/examples/models/gpt.cpp"),
                          model("ExportedModule", "/levin/builtins/models.cpp"), model("Mine", "/home/me/mine.cpp")}};
  Problems problems;
  EXPECT_EQ(list_text("models", {models}, 80, problems),
            "models (model)\n"
            " yours\n"
            "  Mine            a model\n"
            " Levin's\n"
            "  ExportedModule  a model\n"
            " examples (examples/models)\n"
            "  GPT             a model\n"
            " of articles that Levin reproduces (docs/articles)\n"
            "  ThousandLayers  a model\n");
}

TEST(HelpText, CommandHelpHoldsUsageKeysAndTheTrainersOptions) {
  const std::string text = command_help(Command::fit, "Options of the trainer\n  patience  how long\n", 80);
  expect_parts(text,
               {"levin fit --config FILE", "--print_config", "Keys of a run file", "seed_everything", "lr_scheduler",
                "\nOptions of the trainer\n  patience  how long\n", "levin list", "levin help NAME"});
  EXPECT_LE(widest_line(text), 80u);
  EXPECT_LE(widest_line(usage_text(80)), 80u);
  expect_parts(usage_text(80), {"fit|validate|test|predict", "list [KIND]", "--version"});
}

TEST(HelpText, CommandHelpListsTheOptionsOfTheCommand) {
  const std::string predict = command_help(Command::predict, "", 80), fit = command_help(Command::fit, "", 80);
  for (const std::string& text : {predict, fit}) {
    expect_parts(text, {"--config FILE", "--ckpt_path FILE", "--init-method", "--print_config", "--log_level LEVELS"});
    EXPECT_LE(widest_line(text), 80u);
  }
  expect_parts(predict, {"[--output FILE] [overrides…]", "  --output FILE", ".csv", ".jsonl", ".safetensors",
                         "PredictionWriter"});
  EXPECT_EQ(fit.find("--output"), std::string::npos);
}

TEST(HelpText, ADefaultThatIsAClassIsItsName) {
  const std::vector<FieldInfo> fields{
      {.name = "plain", .type = "strategy", .default_text = "class_path: auto", .doc = ""},
      {.name = "more", .type = "precision", .default_text = "class_path: MixedPrecision\ninit_args: {}", .doc = ""}};
  const std::string text = options_table(fields, 100);
  expect_parts(text, {"plain   strategy   auto\n", "class_path:", "MixedPrecision"});
}

TEST(HelpText, WrapsAtSpacesAndBreaksWordsThatDoNotFit) {
  EXPECT_EQ(wrapped("one two three four five six", 24, 2), "  one two three four\n  five six\n");
  EXPECT_EQ(wrapped(std::string(45, 'x'), 20),
            std::string(20, 'x') + "\n" + std::string(20, 'x') + "\n" + std::string(5, 'x') + "\n");
  EXPECT_EQ(wrapped("ééééééééééééééééééééé", 20), "éééééééééééééééééééé\né\n");
  EXPECT_EQ(wrapped("", 20), "\n");
}

}  // namespace
}  // namespace levin::help_text_test
