#include "levin/cli/config/merge.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"
#include "levin/yaml/yaml_file.h"

namespace levin::merge_test {
namespace {

using test::expect_parts;
using testing::ConfigFiles;
using testing::lines;

ConfigNode tree(const std::string& text) {
  Problems problems;
  ConfigNode node = read_yaml_text(text, "run.yaml", problems);
  EXPECT_TRUE(problems.empty()) << lines(problems);
  return node;
}

ConfigNode merged(const std::string& lower, const std::string& upper) {
  ConfigNode node = tree(lower);
  merge_config(node, tree(upper));
  return node;
}

void expect_same(const ConfigNode& node, const std::string& wanted) {
  EXPECT_TRUE(node.same_as(tree(wanted))) << to_yaml(node) << "instead of\n" << wanted;
}

// "--a.b=c" or "--a.b+=c"
Override change(const std::string& text) {
  const size_t equals = text.find('=');
  const bool append = text[equals - 1] == '+';
  return {text.substr(2, equals - 2 - (append ? 1 : 0)), text.substr(equals + 1), append};
}

ConfigNode overridden(const std::string& text, const std::vector<std::string>& changes) {
  ConfigNode node = tree(text);
  Problems problems;
  for (const auto& each : changes) apply_override(node, change(each), problems);
  EXPECT_TRUE(problems.empty()) << lines(problems);
  return node;
}

std::string override_errors(const std::string& text, const std::string& each) {
  ConfigNode node = tree(text);
  Problems problems;
  apply_override(node, change(each), problems);
  expect_same(node, text);  // a refused override leaves no trace
  return lines(problems);
}

const std::string kTwoCallbacks =
    "trainer: {callbacks: [{class_path: EarlyStopping, init_args: {patience: 1}}, Timer]}";

TEST(MergeConfig, MapsMergeKeyByKeyAndListsAndScalarsReplace) {
  expect_same(merged("{a: {b: 1, c: [1, 2]}, d: 3}", "{a: {c: [4], e: 5}, f: 6}"),
              "{a: {b: 1, c: [4], e: 5}, d: 3, f: 6}");
  expect_same(merged("{a: 1}", "{a: {b: 2}}"), "{a: {b: 2}}");
  expect_same(merged("{a: {b: 2}}", "{a: null}"), "{a: null}");
}

TEST(MergeConfig, ADifferentClassDropsTheOldInitArgs) {
  expect_same(merged("{model: {class_path: A, init_args: {x: 1}}}", "{model: {class_path: B, init_args: {y: 2}}}"),
              "{model: {class_path: B, init_args: {y: 2}}}");
  expect_same(merged("{model: {class_path: A, init_args: {x: 1}}}", "{model: B}"), "{model: {class_path: B}}");
}

TEST(MergeConfig, TheSameClassMergesItsInitArgs) {
  expect_same(merged("{model: {class_path: A, init_args: {x: 1}}}", "{model: {class_path: A, init_args: {y: 2}}}"),
              "{model: {class_path: A, init_args: {x: 1, y: 2}}}");
  expect_same(merged("{model: {class_path: pkg.A, init_args: {x: 1}}}", "{model: {init_args: {y: 2}}}"),
              "{model: {class_path: pkg.A, init_args: {x: 1, y: 2}}}");
  expect_same(merged("{model: A}", "{model: {init_args: {y: 2}}}"), "{model: {class_path: A, init_args: {y: 2}}}");
  expect_same(merged("{model: {class_path: A, init_args: {x: 1}}}", "{model: my.pkg.A}"),
              "{model: {class_path: my.pkg.A, init_args: {x: 1}}}");
}

TEST(MergeConfig, KeepsWhatStandsNextToTheClass) {
  expect_same(merged("{lr_scheduler: {class_path: A, init_args: {x: 1}, interval: step}}", "{lr_scheduler: B}"),
              "{lr_scheduler: {class_path: B, interval: step}}");
}

TEST(Override, SetsScalarsListsAndMaps) {
  expect_same(
      overridden("{trainer: {max_epochs: 1}}", {"--trainer.max_epochs=5", "--trainer.precision=bf16-mixed",
                                                "--data.x=[1, 2]", "--trainer={min_epochs: 2}", "--ckpt_path=null"}),
      "{trainer: {max_epochs: 5, precision: bf16-mixed, min_epochs: 2}, data: {init_args: {x: [1, 2]}}, "
      "ckpt_path: null}");
}

TEST(Override, ReachesListItemsInBothSpellings) {
  for (const std::string path :
       {"--trainer.callbacks.0.init_args.patience", "--trainer.callbacks[0].init_args.patience",
        "--trainer.callbacks[0].patience", "--trainer.callbacks.0.patience"}) {
    expect_same(overridden(kTwoCallbacks, {path + "=3"}),
                "trainer: {callbacks: [{class_path: EarlyStopping, init_args: {patience: 3}}, Timer]}");
  }
  expect_same(overridden(kTwoCallbacks, {"--trainer.callbacks.1.duration=1h"}),
              "trainer: {callbacks: [{class_path: EarlyStopping, init_args: {patience: 1}}, "
              "{class_path: Timer, init_args: {duration: 1h}}]}");
  expect_same(overridden("{a: [[1, 2], [3, 4]]}", {"--a[1][0]=9", "--a.0.1=8"}), "{a: [[1, 8], [9, 4]]}");
}

TEST(Override, AppendsToLists) {
  expect_same(overridden("{}", {"--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.0.patience=3",
                                "--trainer.callbacks+={class_path: Timer, init_args: {duration: 1h}}",
                                "--trainer.callbacks+=[A, B]"}),
              "trainer: {callbacks: [{class_path: EarlyStopping, init_args: {patience: 3}}, "
              "{class_path: Timer, init_args: {duration: 1h}}, A, B]}");
  expect_same(overridden(kTwoCallbacks, {"--trainer.callbacks=[]"}), "trainer: {callbacks: []}");
}

TEST(Override, NamesAfterAnAppendedItemAreItsOptions) {
  expect_same(
      overridden(kTwoCallbacks, {"--trainer.callbacks+=Timer", "--trainer.callbacks.duration=1h",
                                 "--trainer.callbacks.init_args.interval=step", "--trainer.callbacks+=A",
                                 "--trainer.callbacks.x.y=2", "--trainer.callbacks.0.patience=4"}),
      "trainer: {callbacks: [{class_path: EarlyStopping, init_args: {patience: 4}}, Timer, "
      "{class_path: Timer, init_args: {duration: 1h, interval: step}}, {class_path: A, init_args: {x: {y: 2}}}]}");
  expect_same(overridden("{}", {"--trainer.callbacks+={class_path: A, init_args: {x: 1}}", "--trainer.callbacks.x=2"}),
              "trainer: {callbacks: [{class_path: A, init_args: {x: 2}}]}");
}

// It could be meant for any of them.
TEST(Override, NamesInAListOfTheRunFileAreRefused) {
  Problems problems;
  ConfigNode node = tree(kTwoCallbacks);
  apply_override(node, Override{"trainer.callbacks.duration", "1h"}, problems);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems.lines()[0],
            "--trainer.callbacks.duration=1h: trainer.callbacks: is a list of 2 items: write the number of one, as in "
            "trainer.callbacks.0, not \"duration\".");
}

TEST(Override, NamesAClassAndItsOptionsInShort) {
  expect_same(overridden("{}", {"--model=Classifier", "--model.hidden=256", "--optimizer=AdamW", "--optimizer.lr=0.1"}),
              "{model: {class_path: Classifier, init_args: {hidden: 256}}, "
              "optimizer: {class_path: AdamW, init_args: {lr: 0.1}}}");
  expect_same(overridden("{model: {class_path: A, init_args: {x: 1}}}", {"--model=B", "--model.y=2"}),
              "{model: {class_path: B, init_args: {y: 2}}}");
  expect_same(overridden("{model: {class_path: A, init_args: {x: 1}}}", {"--model.class_path=B"}),
              "{model: {class_path: B}}");
  expect_same(overridden("{model: {class_path: A, init_args: {x: 1}}}", {"--model.class_path=A"}),
              "{model: {class_path: A, init_args: {x: 1}}}");
  expect_same(overridden("{data: D}", {"--data.batch_size=32"}),
              "{data: {class_path: D, init_args: {batch_size: 32}}}");
  expect_same(overridden("{lr_scheduler: StepLR}", {"--lr_scheduler.step_size=3", "--lr_scheduler.interval=step"}),
              "{lr_scheduler: {class_path: StepLR, init_args: {step_size: 3}, interval: step}}");
  expect_same(overridden("{optimizer: AdamW}", {"--optimizer.lr=3", "--optimizer.no_decay=true"}),
              "{optimizer: {class_path: AdamW, init_args: {lr: 3}, no_decay: true}}");
  expect_same(overridden("{}", {"--optimizer.lr=0.1", "--optimizer=AdamW"}),
              "{optimizer: {class_path: AdamW, init_args: {lr: 0.1}}}");
  expect_same(overridden("{model: M}", {"--model.encoder={class_path: E}", "--model.encoder.depth=2"}),
              "{model: {class_path: M, init_args: {encoder: {class_path: E, init_args: {depth: 2}}}}}");
}

TEST(Override, MarksPointAtTheCommandLine) {
  const ConfigNode node = overridden("{trainer: {max_epochs: 1}}", {"--trainer.max_epochs=x"});
  const ConfigNode* value = node.find("trainer")->find("max_epochs");
  EXPECT_EQ(value->mark.str(), "--trainer.max_epochs=x");
  Problems problems;
  int64_t epochs = 0;
  ValueType<int64_t>::read(*value, epochs, "trainer.max_epochs", problems);
  EXPECT_EQ(problems.lines()[0], "--trainer.max_epochs=x: expected a whole number, got x.");
}

// What a problem with the value at `path` says, if it was set by that override.
std::string problem_with(const Override& change, const std::string& path) {
  Problems problems;
  problems.add({change.str(), 0, 0}, path, "what");
  return problems.lines()[0];
}

TEST(Override, ItsPathIsNamedOnce) {
  EXPECT_EQ(problem_with({"trainer.devices", "x"}, "trainer.devices"), "--trainer.devices=x: what");
  EXPECT_EQ(problem_with({"model.lr", "-1"}, "model.init_args.lr"), "--model.lr=-1: what");
  EXPECT_EQ(problem_with({"trainer.callbacks.0.monitor", "a=b"}, "trainer.callbacks[0].init_args.monitor"),
            "--trainer.callbacks.0.monitor=a=b: what");
  EXPECT_EQ(problem_with({"trainer.callbacks", "X", true}, "trainer.callbacks[2]"), "--trainer.callbacks+=X: what");
  EXPECT_EQ(problem_with({"trainer.recompute", "{a: 1}"}, "trainer.recompute.a"),
            "--trainer.recompute={a: 1}: trainer.recompute.a: what");  // a part of what was written
}

// A shell passes --trainer.max_epochs=$EPOCHS with EPOCHS unset as an empty value.
TEST(Override, AnEmptyValueIsAnEmptyStringAndNoNull) {
  Problems problems;
  const ConfigNode node = assemble_config({Override{"trainer.max_epochs", ""}, Override{"trainer.default_root_dir", ""},
                                           Override{"trainer.min_epochs", "null"}},
                                          problems);
  std::optional<int64_t> epochs = 3;
  ValueType<std::optional<int64_t>>::read(*node.find("trainer")->find("max_epochs"), epochs, "trainer.max_epochs",
                                          problems);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems.lines()[0],
            "--trainer.max_epochs=: expected a whole number, got an empty value. If null is meant, write "
            "--trainer.max_epochs=null.");
  std::string folder = "x";
  EXPECT_TRUE(ValueType<std::string>::read(*node.find("trainer")->find("default_root_dir"), folder, "", problems));
  EXPECT_EQ(folder, "");
  EXPECT_TRUE(node.find("trainer")->find("min_epochs")->is_null());
}

TEST(Override, AnIndexOutOfRangeReportsHowManyItemsThereAre) {
  expect_parts(override_errors(kTwoCallbacks, "--trainer.callbacks.2.patience=3"),
               {"--trainer.callbacks.2.patience=3: trainer.callbacks: item 2 does not exist", "2 items",
                "counted from 0", "--trainer.callbacks+=VALUE"});
  expect_parts(override_errors("{}", "--trainer.callbacks[0].x=3"), {"item 0 does not exist", "0 items"});
  expect_parts(override_errors(kTwoCallbacks, "--trainer.callbacks.99999999999999999999=3"), {"list of 2 items"});
}

TEST(Override, APathThroughAScalarIsAnError) {
  expect_parts(override_errors("{trainer: {max_epochs: 3}}", "--trainer.max_epochs.x=1"),
               {"trainer.max_epochs: is 3", "nothing can be set below it (\"x\")", "--trainer.max_epochs itself"});
  expect_parts(override_errors("{trainer: {max_epochs: 3}}", "--trainer.max_epochs[0]=1"), {"is 3, not a list"});
  expect_parts(override_errors("{trainer: {max_epochs: 3}}", "--trainer.max_epochs+=1"), {"cannot append to 3"});
  expect_parts(override_errors(kTwoCallbacks, "--trainer.callbacks.first=1"), {"list of 2 items", "not \"first\""});
  expect_parts(override_errors("{trainer: {callbacks: [{class_path: A, init_args: {monitor: val_loss}}]}}",
                               "--trainer.callbacks.0.init_args.monitor.x=1"),
               {"is val_loss, so nothing can be set below it"});
}

TEST(Override, RefusesBrokenPaths) {
  for (const std::string path :
       {"--a..b=1", "--a.=1", "--.a=1", "--a[=1", "--a[x]=1", "--a[0]b=1", "--a[]=1", "--a[-1]=1", "--=1"}) {
    expect_parts(override_errors("{a: [1]}", path), {"not a path"});
  }
}

TEST(Override, RefusesPathsThatNoFileCouldHold) {
  expect_parts(override_errors("{}", "--a.\xff=1"), {"not UTF-8 (byte 0xff)"});
  expect_parts(override_errors("{}", "--a.b\x07=1"), {"a control character (byte 0x07)"});
}

TEST(AssembleConfig, LaysFilesAndOverridesFromLeftToRight) {
  const ConfigFiles files;
  const ConfigFile one{files.write("one.yaml", "trainer: {max_epochs: 1, min_epochs: 1}\n")};
  const ConfigFile two{files.write("two.json", R"({"trainer": {"max_epochs": 2}})")};
  Problems problems;
  const Override five = change("--trainer.max_epochs=5");
  expect_same(assemble_config({one, five, two}, problems), "{trainer: {max_epochs: 2, min_epochs: 1}}");
  expect_same(assemble_config({one, two, five}, problems), "{trainer: {max_epochs: 5, min_epochs: 1}}");
  EXPECT_TRUE(problems.empty());
}

TEST(AssembleConfig, CollectsTheProblemsOfAllSources) {
  const ConfigFiles files;
  const ConfigFile bad{files.write("bad.yaml", "a: 1\na: 2\n")};
  Problems problems;
  (void)assemble_config({bad, ConfigFile{"/nowhere.yaml"}, change("--trainer.x[3]=1")}, problems);
  ASSERT_EQ(problems.size(), 3u);
  expect_parts(lines(problems), {"bad.yaml:2:1", "/nowhere.yaml", "--trainer.x[3]=1"});
}

}  // namespace
}  // namespace levin::merge_test
