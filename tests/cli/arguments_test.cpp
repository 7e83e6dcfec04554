#include "levin/cli/config/arguments.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"

namespace levin::arguments_test {
namespace {

using test::expect_parts;
using testing::lines;

Arguments parse(const std::vector<std::string>& args) {
  Problems problems;
  Arguments arguments = parse_arguments(args, {"max_epochs", "callbacks"}, problems);
  EXPECT_TRUE(problems.empty()) << lines(problems);
  return arguments;
}

std::string errors(const std::vector<std::string>& args) {
  Problems problems;
  (void)parse_arguments(args, {"max_epochs", "callbacks"}, problems);
  return lines(problems);
}

std::string shown(const std::vector<ConfigSource>& sources) {
  std::string text;
  for (const auto& source : sources) {
    const auto* file = std::get_if<ConfigFile>(&source);
    text += (text.empty() ? "" : " | ") + (file != nullptr ? file->path : std::get<Override>(source).str());
  }
  return text;
}

TEST(Arguments, KeepTheOrderOfFilesAndOverrides) {
  const Arguments arguments = parse({"fit", "--config", "a.yaml", "--trainer.max_epochs=1", "-c", "b.yaml", "--model",
                                     "Classifier", "--config=c.yaml", "--data.x=2"});
  EXPECT_EQ(arguments.command, Command::fit);
  EXPECT_EQ(shown(arguments.sources),
            "a.yaml | --trainer.max_epochs=1 | b.yaml | --model=Classifier | c.yaml | --data.x=2");
}

TEST(Arguments, ReadEverySubcommand) {
  EXPECT_EQ(parse({"fit"}).command, Command::fit);
  EXPECT_EQ(parse({"validate"}).command, Command::validate);
  EXPECT_EQ(parse({"test"}).command, Command::test);
  EXPECT_EQ(parse({"predict"}).command, Command::predict);
  EXPECT_EQ(parse({"--version"}).command, Command::version);
  EXPECT_EQ(parse({}).command, Command::help);
  EXPECT_EQ(parse({"--help"}).command, Command::help);
  EXPECT_EQ(parse({"list", "callbacks"}).topic, "callbacks");
  EXPECT_EQ(parse({"help", "EarlyStopping"}).topic, "EarlyStopping");
  EXPECT_EQ(parse({"help"}).topic, "");
  EXPECT_EQ(parse({"help", "fit"}).command, Command::fit);
  EXPECT_TRUE(parse({"help", "fit"}).help);
}

TEST(Arguments, ReadFlags) {
  const Arguments arguments = parse({"test", "--print_config", "--ckpt_path", "best.safetensors"});
  EXPECT_TRUE(arguments.print_config);
  EXPECT_FALSE(arguments.help);
  EXPECT_EQ(shown(arguments.sources), "--ckpt_path=best.safetensors");
  EXPECT_TRUE(parse({"fit", "--help"}).help);
  EXPECT_TRUE(parse({"fit", "-h", "--trainer.max_epochs=1"}).help);
}

TEST(Arguments, TakeNegativeNumbersSpacesAndEqualsSignsInValues) {
  const Arguments arguments =
      parse({"fit", "--trainer.max_epochs", "-1", "--model.expr=a=b", "--trainer.callbacks+={class_path: Timer}",
             "--seed_everything", "false", "--trainer.callbacks=[]", "--data.name", ""});
  EXPECT_EQ(shown(arguments.sources),
            "--trainer.max_epochs=-1 | --model.expr=a=b | --trainer.callbacks+={class_path: Timer} | "
            "--seed_everything=false | --trainer.callbacks=[] | --data.name=");
}

TEST(Arguments, AnOptionWithoutAValueIsAnError) {
  expect_parts(errors({"fit", "--trainer.max_epochs"}),
               {"--trainer.max_epochs: no value follows", "--trainer.max_epochs=VALUE"});
  expect_parts(errors({"fit", "--config", "--print_config"}), {"--config: no value follows. Write --config FILE"});
  expect_parts(errors({"fit", "--config="}), {"the file's name is empty"});
}

TEST(Arguments, TyposNameTheNearest) {
  expect_parts(errors({"fti"}), {"\"fti\": unknown subcommand", "fit, validate", "Did you mean \"fit\"?"});
  expect_parts(errors({"fit", "--trianer.max_epochs=3"}),
               {"--trianer.max_epochs: unknown option", "--trainer.max_epochs?"});
  expect_parts(errors({"fit", "--confg", "x.yaml"}), {"--confg: unknown option. Did you mean --config?"});
  expect_parts(errors({"fit", "--max_epochs=3"}), {"--max_epochs: unknown option. Did you mean --trainer.max_epochs?"});
  expect_parts(errors({"fit", "--lr=0.1"}), {"--lr: unknown option. One of the model's is written --model.lr"});
  expect_parts(errors({"fit", "run.yaml"}), {"\"run.yaml\": unexpected argument. Did you mean --config run.yaml?"});
  expect_parts(errors({"run.yaml"}), {"unknown subcommand", "Did you mean fit --config run.yaml?"});
  expect_parts(errors({"fit", "--print-config"}), {"--print-config: unknown option. Did you mean --print_config?"});
}

TEST(Arguments, AllMistakesAreToldAtOnce) {
  const std::string text = errors({"fit", "stray", "--confg=x", "--zzzz", "--trainer.x"});
  expect_parts(text, {"\"stray\": unexpected argument", "--confg: unknown option", "--zzzz: unknown option",
                      "--trainer.x: no value"});
}

TEST(Arguments, ListAndHelpTakeNoRunOptions) {
  expect_parts(errors({"list", "--trainer.max_epochs=3"}), {"list: takes only --plugins and --config"});
  expect_parts(errors({"help", "GPT", "--model.lr=3"}), {"help: takes only --plugins and --config", "--model.lr=3"});
}

TEST(Arguments, ListAndHelpTakeTheFilesThatNamePlugins) {
  Problems problems;
  const Arguments help = parse_arguments({"help", "MyModel", "--plugins", "x.so", "--config=run.yaml"}, {}, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(help.command, Command::help);
  EXPECT_EQ(help.topic, "MyModel");
  ASSERT_EQ(help.sources.size(), 2U);
  EXPECT_EQ(std::get<Override>(help.sources[0]).value, "x.so");
  EXPECT_EQ(std::get<ConfigFile>(help.sources[1]).path, "run.yaml");
}

}  // namespace
}  // namespace levin::arguments_test
