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
  expect_parts(errors({"fit", "trainer.precision=bf16-mixed"}),
               {"\"trainer.precision=bf16-mixed\": unexpected argument. Did you mean --trainer.precision=bf16-mixed?"});
  expect_parts(errors({"run.yaml"}), {"unknown subcommand", "Did you mean fit --config run.yaml?"});
  expect_parts(errors({"fit", "--print-config"}), {"--print-config: unknown option. Did you mean --print_config?"});
}

TEST(Arguments, AllMistakesAreReportedAtOnce) {
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

using Kind = OwnOption::Kind;
const std::vector<OwnOption> kOwn{{"nodes", Kind::numbers}, {"job-name"}, {"dry-run", Kind::flag}, {"lr_finder"}};

TEST(SplitArguments, TakesACommandsOwnOptionsAndKeepsTheOrderOfTheRest) {
  Problems problems;
  const SplitArguments split =
      split_arguments({"--config", "a.yaml", "--nodes=1,3", "--dry_run", "--trainer.x", "1", "--nodes", "5",
                       "--job_name=x y", "--lr_finder.mode=linear", "-c", "b.yaml"},
                      kOwn, problems);
  EXPECT_TRUE(problems.empty()) << lines(problems);
  EXPECT_FALSE(split.help);
  EXPECT_EQ(split.rest, (std::vector<std::string>{"--config", "a.yaml", "--trainer.x", "1", "-c", "b.yaml"}));
  const ConfigNode* nodes = split.options.find("nodes");
  ASSERT_NE(nodes, nullptr);
  ASSERT_EQ(nodes->items.size(), 3U);
  EXPECT_EQ(nodes->items[1].text + nodes->items[2].text, "35");
  for (const auto& [name, text] : {std::pair{"dry-run", "true"}, std::pair{"job-name", "x y"}}) {
    ASSERT_NE(split.options.find(name), nullptr) << name;
    EXPECT_EQ(split.options.find(name)->text, text);
  }
  ASSERT_NE(split.options.find("lr_finder"), nullptr);
  ASSERT_NE(split.options.find("lr_finder")->find("mode"), nullptr);
  EXPECT_EQ(split.options.find("lr_finder")->find("mode")->text, "linear");
  EXPECT_TRUE(split_arguments({"x", "-h"}, kOwn, problems).help);
}

TEST(SplitArguments, AnOptionIsNotTheValueOfAnother) {
  Problems problems;
  const SplitArguments split = split_arguments({"--job-name", "--nodes", "2", "--lr_finder.mode"}, kOwn, problems);
  EXPECT_EQ(split.options.find("job-name"), nullptr);
  ASSERT_NE(split.options.find("nodes"), nullptr);
  expect_parts(lines(problems), {"--job-name: no value follows", "--lr_finder.mode: no value follows"});
}

TEST(SplitArguments, UnknownOptionsAndSurplusArgumentsAreNamed) {
  Problems problems;
  refuse_rest({"a", "--nods=3", "b"}, kOwn, 1, "a second file.", problems);
  expect_parts(lines(problems), {"\"--nods=3\": unknown option. Did you mean \"--nodes\"?", "\"b\": a second file."});
}

}  // namespace
}  // namespace levin::arguments_test
