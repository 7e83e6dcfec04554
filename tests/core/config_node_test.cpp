// Reading back what to_yaml() writes is tested in tests/cli/round_trip_test.cpp, where there is a reader.
#include "levin/core/options/config_node.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace levin::config_node_test {
namespace {

ConfigNode text(const std::string& value) {
  return ConfigNode::scalar(value, true);
}

TEST(Mark, SaysFileLineAndColumn) {
  EXPECT_EQ((Mark{"run.yaml", 7, 3}).str(), "run.yaml:7:3");
  EXPECT_EQ((Mark{"--trainer.max_epochs=x", 0, 0}).str(), "--trainer.max_epochs=x");
  EXPECT_EQ(Mark{}.str(), "");
}

TEST(ConfigNode, KeepsTheOrderOfKeys) {
  ConfigNode node = ConfigNode::map();
  node.set("b", text("1"));
  node.set("a", text("2"));
  node.set("b", text("3"), {"x", 1, 1});
  ASSERT_EQ(node.entries.size(), 2u);
  EXPECT_EQ(node.entries[0].key, "b");
  EXPECT_EQ(node.entries[0].value.text, "3");
  EXPECT_EQ(node.entries[0].key_mark.str(), "x:1:1");
}

TEST(ConfigNode, FindsAndErasesKeys) {
  ConfigNode node = ConfigNode::map();
  node.set("a", text("1"));
  ASSERT_NE(node.find("a"), nullptr);
  EXPECT_EQ(node.find("b"), nullptr);
  EXPECT_TRUE(node.erase("a"));
  EXPECT_FALSE(node.erase("a"));
  EXPECT_EQ(ConfigNode{}.find("a"), nullptr);
}

TEST(ConfigNode, SettingAKeyMakesAMapOfAnythingElse) {
  for (ConfigNode node : {ConfigNode{}, text("x"), ConfigNode::list({text("x")})}) {
    node.set("a", text("1"));
    ConfigNode wanted = ConfigNode::map();
    wanted.set("a", text("1"));
    EXPECT_TRUE(node.same_as(wanted)) << to_yaml(node);
  }
}

TEST(ConfigNode, ShowsItselfInMessages) {
  EXPECT_EQ(ConfigNode{}.shown(), "null");
  EXPECT_EQ(ConfigNode::scalar("5").shown(), "5");
  EXPECT_EQ(text("5").shown(), "\"5\"");
  EXPECT_EQ(ConfigNode::list().shown(), "a list");
  EXPECT_EQ(ConfigNode::map().shown(), "a map");
  EXPECT_LT(text(std::string(1'000'000, 'x')).shown().size(), 200u);
  EXPECT_EQ(text("a\nb").shown(), "\"a\\nb\"");
}

TEST(ConfigNode, SameAsComparesValuesNotStyleOrPlaces) {
  EXPECT_TRUE(text("word").same_as(ConfigNode::scalar("word")));
  EXPECT_FALSE(text("5").same_as(ConfigNode::scalar("5")));
  EXPECT_FALSE(text("true").same_as(ConfigNode::scalar("true")));
  EXPECT_FALSE(ConfigNode::list({text("a"), text("b")}).same_as(ConfigNode::list({text("b"), text("a")})));
  EXPECT_FALSE(ConfigNode{}.same_as(ConfigNode::map()));
  ConfigNode one = ConfigNode::map();
  one.set("a", text("1"), {"x", 1, 1});
  one.set("b", text("2"));
  ConfigNode other = ConfigNode::map();
  other.set("b", text("2"));
  other.set("a", text("1"));
  EXPECT_TRUE(one.same_as(other));
  other.set("c", {});
  EXPECT_FALSE(one.same_as(other));
  other.erase("a");
  EXPECT_FALSE(one.same_as(other));
}

TEST(NumberText, IsTheShortestThatReadsBack) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(3), "3.0");
  EXPECT_EQ(number_text(-2), "-2.0");
  EXPECT_EQ(number_text(-0.0), "-0.0");
  EXPECT_EQ(number_text(1e-5), "1e-05");
  EXPECT_EQ(number_text(1e300), "1e+300");
  EXPECT_EQ(number_text(std::numeric_limits<double>::max()), "1.7976931348623157e+308");
  EXPECT_EQ(number_text(INFINITY), ".inf");
  EXPECT_EQ(number_text(-INFINITY), "-.inf");
  EXPECT_EQ(number_text(NAN), ".nan");
}

TEST(ToYaml, WritesBlocksWithShortListsOnOneLine) {
  ConfigNode init_args = ConfigNode::map();
  init_args.set("monitor", text("val_loss"));
  init_args.set("levels", ConfigNode::list({ConfigNode::scalar("0.5"), ConfigNode{}}));
  ConfigNode spec = ConfigNode::map();
  spec.set("class_path", text("EarlyStopping"));
  spec.set("init_args", init_args);
  ConfigNode node = ConfigNode::map();
  node.set("callbacks", ConfigNode::list({spec, text("Timer")}));
  node.set("empty", ConfigNode::map());
  node.set("none", ConfigNode::list());
  node.set("deep", ConfigNode::list({ConfigNode::list({ConfigNode::scalar("1"), ConfigNode::scalar("2")}), spec}));
  EXPECT_EQ(to_yaml(node),
            "callbacks:\n"
            "  - class_path: EarlyStopping\n"
            "    init_args:\n"
            "      monitor: val_loss\n"
            "      levels: [0.5, null]\n"
            "  - Timer\n"
            "empty: {}\n"
            "none: []\n"
            "deep:\n"
            "  - [1, 2]\n"
            "  - class_path: EarlyStopping\n"
            "    init_args:\n"
            "      monitor: val_loss\n"
            "      levels: [0.5, null]\n");
}

TEST(ToYaml, WritesNegativeNumbersPlain) {
  EXPECT_EQ(to_yaml(ConfigNode::scalar("-1")), "-1\n");
  EXPECT_EQ(to_yaml(ConfigNode::scalar("-.inf")), "-.inf\n");
  EXPECT_EQ(to_yaml(ConfigNode::scalar("-1"), 2), "  -1\n");
}

TEST(ToYaml, QuotesTextThatAReaderOfYamlMightTakeForSomethingElse) {
  for (const std::string word :
       {"5", "-1", "true", "null", "~",    "yes",  "No", "off", "010", "0x10", "1_000", "1:30", "1e3", "2024-01-01",
        "",  " a", "a ",   "- a",  "a: b", "a #b", "[a", "{a}", "*a",  "&a",   "<<",    "...",  "a,b"}) {
    const std::string yaml = to_yaml(text(word));
    EXPECT_EQ(yaml, "\"" + word + "\"\n");
  }
  for (const std::string word : {"val_loss", "a:b", "a#b", "bf16-mixed", "runs/x.y", "é", "yes please"}) {
    EXPECT_EQ(to_yaml(text(word)), word + "\n");
  }
  EXPECT_EQ(to_yaml(text("a\n\t\"\\\x01")), "\"a\\n\\t\\\"\\\\\\x01\"\n");
}

}  // namespace
}  // namespace levin::config_node_test
