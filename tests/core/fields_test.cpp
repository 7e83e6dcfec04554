#include "levin/core/options/fields.h"

#include <gtest/gtest.h>

#include <cmath>

namespace levin::fields_test {
namespace {

struct InnerOptions {
  int64_t depth = 2;
  static auto fields() { return levin::fields(field("depth", &InnerOptions::depth, "layers").min(1)); }
};

struct OuterOptions {
  std::string monitor = "val_loss";
  double delta = 0.5;
  std::optional<int64_t> limit = std::nullopt;
  std::vector<double> marks = {1, 2};
  InnerOptions inner = {};
  static auto fields() {
    using O = OuterOptions;
    return levin::fields(field("monitor", &O::monitor, "metric").not_empty(),
                         field("delta", &O::delta, "least change").above(0).below(1.0),
                         field("limit", &O::limit, "most steps"), field("marks", &O::marks, "levels"),
                         field("inner", &O::inner, "the inner part"));
  }
};

ConfigNode scalar(const std::string& text, int line) {
  ConfigNode node = ConfigNode::scalar(text);
  node.mark = {"run.yaml", line, 1};
  return node;
}

std::string read_errors(const ConfigNode& node) {
  OuterOptions options;
  Problems problems;
  EXPECT_FALSE(read_options(node, options, "outer", problems));
  std::string text;
  for (const auto& line : problems.lines()) text += (text.empty() ? "" : "\n") + line;
  return text;
}

struct RequiredOptions {
  std::string path = "";
  static auto fields() {
    using O = RequiredOptions;
    return levin::fields(
        field("path", &O::path, "the file")
            .not_empty()
            .check_silently([](const std::string& text) { return text != "odd"; }, "an ordinary path"));
  }
};

TEST(Fields, HelpReportsWhatIsRequiredAndNoRuleThatHardlyAnybodyBreaks) {
  EXPECT_EQ(describe_options<RequiredOptions>()[0].doc, "the file; required");
  EXPECT_EQ(detail::rule_in_help("set, and > 0", false), "required, > 0");
  EXPECT_EQ(detail::rule_in_help(">= 1", false), ">= 1");
  Problems problems;
  EXPECT_FALSE(check_options(RequiredOptions{}, "", problems));
  EXPECT_FALSE(check_options(RequiredOptions{"odd"}, "", problems));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems.lines()[0], "path: must be set, got \"\".");
  EXPECT_EQ(problems.lines()[1], "path: must be an ordinary path, got \"odd\".");
}

TEST(Fields, NamesAreInOrder) {
  EXPECT_EQ(field_names<OuterOptions>(), (std::vector<std::string>{"monitor", "delta", "limit", "marks", "inner"}));
  EXPECT_TRUE(field_names<NoOptions>().empty());
}

TEST(Fields, DescribeNameTypeDefaultAndMeaning) {
  const std::vector<FieldInfo> infos = describe_options<OuterOptions>();
  ASSERT_EQ(infos.size(), 5u);
  EXPECT_EQ(infos[0].name, "monitor");
  EXPECT_EQ(infos[0].type, "string");
  EXPECT_EQ(infos[0].default_text, "val_loss");
  EXPECT_EQ(infos[0].doc, "metric; not empty");
  EXPECT_EQ(infos[1].default_text, "0.5");
  EXPECT_EQ(infos[1].doc, "least change; > 0; < 1.0");
  EXPECT_EQ(infos[2].type, "int or null");
  EXPECT_EQ(infos[2].default_text, "null");
  EXPECT_EQ(infos[3].default_text, "[1.0, 2.0]");
  EXPECT_EQ(infos[4].type, "map");
}

TEST(ReadOptions, SetsWhatIsThereAndKeepsTheOtherDefaults) {
  ConfigNode inner = ConfigNode::map();
  inner.set("depth", scalar("7", 1));
  ConfigNode node = ConfigNode::map();
  node.set("delta", scalar("0.25", 1));
  node.set("limit", ConfigNode{});
  node.set("inner", inner);
  OuterOptions options;
  options.limit = 9;
  Problems problems;
  EXPECT_TRUE(read_options(node, options, "", problems));
  EXPECT_EQ(options.monitor, "val_loss");
  EXPECT_EQ(options.delta, 0.25);
  EXPECT_EQ(options.limit, std::nullopt);
  EXPECT_EQ(options.inner.depth, 7);
  EXPECT_TRUE(read_options(ConfigNode{}, options, "", problems));
  EXPECT_EQ(options.inner.depth, 7);
}

TEST(ReadOptions, TellsEveryProblemWithItsPlaceAndPath) {
  ConfigNode inner = ConfigNode::map();
  inner.set("depth", scalar("0", 5));
  ConfigNode node = ConfigNode::map();
  node.set("montior", scalar("x", 1), {"run.yaml", 1, 1});
  node.set("monitor", scalar("", 2));
  node.set("delta", scalar("1.0", 3));
  node.set("limit", scalar("x", 4));
  node.set("inner", inner);
  EXPECT_EQ(
      read_errors(node),
      "run.yaml:1:1: outer.montior: unknown key \"montior\". Did you mean \"monitor\"? Known: delta, inner, limit, "
      "marks, monitor.\n"
      "run.yaml:2:1: outer.monitor: must be set, got \"\".\n"
      "run.yaml:3:1: outer.delta: must be < 1.0, got 1.0.\n"
      "run.yaml:4:1: outer.limit: expected a whole number, got x.\n"
      "run.yaml:5:1: outer.inner.depth: must be >= 1, got 0.");
}

TEST(ReadOptions, WantsAMap) {
  EXPECT_EQ(read_errors(scalar("5", 3)), "run.yaml:3:1: outer: expected a map, got 5.");
  EXPECT_EQ(read_errors(ConfigNode::list()), "outer: expected a map, got a list.");
}

TEST(ReadOptions, NanIsOutOfEveryRange) {
  ConfigNode node = ConfigNode::map();
  node.set("delta", scalar(".nan", 1));
  EXPECT_NE(read_errors(node).find("outer.delta: must be finite, got .nan."), std::string::npos);
}

struct NumbersOptions {
  double plain = 0;
  std::optional<double> maybe = {};
  std::vector<double> list = {};
  std::variant<double, std::vector<double>> either = 0.0;
  std::map<std::string, double> named = {};
  double free = 0;
  static auto fields() {
    using O = NumbersOptions;
    return levin::fields(field("plain", &O::plain, ""), field("maybe", &O::maybe, ""), field("list", &O::list, ""),
                         field("either", &O::either, ""), field("named", &O::named, ""),
                         field("free", &O::free, "").any_number());
  }
};

TEST(ReadOptions, NumbersAreFiniteUnlessTheFieldTakesAny) {
  ConfigNode list = ConfigNode::list();
  list.items = {scalar("1", 1), scalar(".inf", 1)};
  ConfigNode named = ConfigNode::map();
  named.set("a", scalar("-.inf", 1));
  ConfigNode node = ConfigNode::map();
  node.set("plain", scalar(".inf", 1));
  node.set("maybe", scalar(".nan", 2));
  node.set("list", list);
  node.set("either", list);
  node.set("named", named);
  node.set("free", scalar(".inf", 6));
  NumbersOptions options;
  Problems problems;
  EXPECT_FALSE(read_options(node, options, "o", problems));
  EXPECT_EQ(
      problems.lines(),
      (std::vector<std::string>{"run.yaml:1:1: o.plain: must be finite, got .inf.",
                                "run.yaml:2:1: o.maybe: must be finite, got .nan.", "o.list: must be finite, got .inf.",
                                "o.either: must be finite, got .inf.", "o.named: must be finite, got -.inf."}));
  EXPECT_THROW((void)checked(NumbersOptions{.list = {1, HUGE_VAL}}, "O"), ConfigError);
  EXPECT_EQ(checked(NumbersOptions{.free = HUGE_VAL}, "O").free, HUGE_VAL);
}

TEST(WriteOptions, MarksWhatRanksMayHaveOfTheirOwn) {
  struct Options {
    int64_t workers = 1;
    int64_t size = 2;
    static auto fields() {
      return levin::fields(field("workers", &Options::workers, "").ranks_may_differ(),
                           field("size", &Options::size, ""));
    }
  };
  const ConfigNode node = write_options(Options());
  EXPECT_TRUE(node.find("workers")->may_differ);
  EXPECT_FALSE(node.find("size")->may_differ);
}

TEST(ReadOptions, ReportsManyUnknownKeysInFewLines) {
  ConfigNode node = ConfigNode::map();
  for (int i = 0; i < 100; ++i) node.set("wrong" + std::to_string(i), scalar("1", i + 1), {"run.yaml", i + 1, 1});
  OuterOptions options;
  Problems problems;
  EXPECT_FALSE(read_options(node, options, "outer", problems));
  ASSERT_EQ(problems.size(), 21u);
  EXPECT_EQ(problems.lines().back(), "outer: 80 more unknown keys.");
}

struct ManyOptions {
  std::vector<InnerOptions> list = {};
  std::optional<InnerOptions> maybe = std::nullopt;
  InnerOptions inner = {.depth = 0};
  static auto fields() {
    using O = ManyOptions;
    return levin::fields(field("list", &O::list, "x"), field("maybe", &O::maybe, "x"), field("inner", &O::inner, "x"));
  }
};

TEST(CheckOptions, GoesIntoListsOptionalsAndNestedStructs) {
  Problems problems;
  EXPECT_FALSE(check_options(ManyOptions{.list = {{1}, {0}}, .maybe = InnerOptions{-1}}, "many", problems));
  EXPECT_EQ(problems.lines(), (std::vector<std::string>{"many.list[1].depth: must be >= 1, got 0.",
                                                        "many.maybe.depth: must be >= 1, got -1.",
                                                        "many.inner.depth: must be >= 1, got 0."}));
}

TEST(ReadOptions, ChecksTheDefaultsOfANestedStructThatWasLeftOut) {
  ManyOptions options;
  Problems problems;
  ConfigNode node = ConfigNode::map();
  node.mark = {"run.yaml", 4, 3};
  EXPECT_FALSE(read_options(node, options, "many", problems));
  EXPECT_EQ(problems.lines(), std::vector<std::string>{"run.yaml:4:3: many.inner.depth: must be >= 1, got 0."});
}

TEST(WriteOptions, ReadsBackToTheSameOptions) {
  OuterOptions options{.monitor = "5", .delta = 0.1, .limit = 3, .marks = {}, .inner = {.depth = 4}};
  const ConfigNode node = write_options(options);
  EXPECT_EQ(node.entries.size(), 5u);
  OuterOptions back;
  Problems problems;
  EXPECT_TRUE(read_options(node, back, "", problems));
  EXPECT_TRUE(write_options(back).same_as(node));
  EXPECT_EQ(back.monitor, "5");
  EXPECT_EQ(back.limit, 3);
  EXPECT_TRUE(back.marks.empty());
  EXPECT_EQ(back.inner.depth, 4);
}

TEST(Checked, GivesGoodOptionsBackAndNamesEveryBadOne) {
  EXPECT_EQ(checked(OuterOptions{.delta = 0.3}, "OuterOptions").delta, 0.3);
  try {
    (void)checked(OuterOptions{.monitor = "", .delta = 0, .inner = {.depth = 0}}, "OuterOptions");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "OuterOptions.monitor: must be set, got \"\".\n"
                 "OuterOptions.delta: must be > 0, got 0.0.\n"
                 "OuterOptions.inner.depth: must be >= 1, got 0.");
  }
}

struct IntOptions {
  int layers = 2;
  static auto fields() { return levin::fields(field("layers", &IntOptions::layers, "how many").min(1)); }
};

TEST(Fields, IntIsAWholeNumberOf32Bits) {
  const auto read = [](const std::string& text) {
    ConfigNode node = ConfigNode::map();
    node.set("layers", scalar(text, 1));
    IntOptions options;
    Problems problems;
    const bool good = read_options(node, options, "model", problems);
    return std::pair(good ? options.layers : 0, problems.empty() ? std::string() : problems.lines()[0]);
  };
  EXPECT_EQ(read("12").first, 12);
  EXPECT_NE(read("3000000000").second.find("a whole number from -2147483648 to 2147483647"), std::string::npos);
  EXPECT_NE(read("0").second.find("must be >= 1, got 0"), std::string::npos);
  EXPECT_EQ(describe_options<IntOptions>()[0].type, "int");
}

}  // namespace
}  // namespace levin::fields_test
