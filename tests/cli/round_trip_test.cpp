// to_yaml() and the reader are inverse: what is printed or saved reads back to the same tree.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cli/config_files.h"
#include "levin/yaml/yaml_file.h"

namespace levin::round_trip_test {
namespace {

using testing::lines;

const std::vector<std::string> kNastyTexts{
    "yes",
    "no",
    "on",
    "Off",
    "y",
    "N",
    "010",
    "0x10",
    "1_000",
    "1e3",
    "1.",
    ".5",
    "+1",
    "-1",
    "--1",
    "-",
    "- a",
    "-a",
    "a: b",
    "a:b",
    "a:",
    ":a",
    ": a",
    ":",
    "#x",
    "a #b",
    "a#b",
    "a, b",
    ",",
    "[a",
    "]",
    "{a",
    "}",
    "[]",
    "{}",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "'",
    "\"",
    "'a'",
    "\"a\"",
    "a'b",
    "a\"b",
    "\\",
    "a\\nb",
    "%a",
    "@a",
    "`a",
    "?",
    "? a",
    "?a",
    "null",
    "Null",
    "NULL",
    "~",
    "true",
    "True",
    "TRUE",
    "false",
    "",
    " ",
    "  a",
    "a ",
    "a  b",
    "\t",
    "a\tb",
    "\ta",
    "a\t",
    "\n",
    "a\nb",
    "a\n",
    "\na",
    "a\n\nb\n",
    "\r",
    "a\r\nb",
    "é",
    "日本語",
    "😀",
    "a\xc2\x85"
    "b",
    "\xe2\x80\xa8",
    "a\xe2\x80\xa9",
    "\xef\xbb\xbf"
    "a",
    "\x01",
    "\x7f",
    "---",
    "--- a",
    "...",
    "... a",
    "....",
    "<<",
    "=",
    ".inf",
    "-.inf",
    ".nan",
    "nan",
    "inf",
    "1:30",
    "12:30:45",
    "2024-01-01",
    "1.0",
    "00:12:00:00",
    "{epoch}-{val_loss:.2f}",
    "C:\\dir",
    "http://x.y/z?a=b#c",
    "a: b: c",
    "${X}",
    "key",
    "x y z",
    "9223372036854775808",
    "1e400",
    "0",
    "-0",
    "1e+20",
    "b'x'",
    "a # b: c",
    "[a, b]: {c}",
    std::string(2000, 'a'),
};

ConfigNode read_back(const ConfigNode& node) {
  Problems problems;
  const std::string text = to_yaml(node);
  ConfigNode back = read_yaml_text(text, "round.yaml", problems);
  EXPECT_TRUE(problems.empty()) << lines(problems) << text;
  EXPECT_TRUE(back.same_as(node)) << text << "read back as\n" << to_yaml(back);
  return back;
}

TEST(RoundTrip, StringsStayTheStringsTheyWere) {
  for (const auto& text : kNastyTexts) {
    ConfigNode node = ConfigNode::map();
    node.set("value", ConfigNode::scalar(text, true));
    node.set("flow", ConfigNode::list({ConfigNode::scalar(text, true), ConfigNode::scalar(text, true)}));
    ConfigNode inner = ConfigNode::map();
    inner.set("x", ConfigNode::scalar(text, true));
    node.set("block", ConfigNode::list({inner, ConfigNode::scalar(text, true)}));
    const ConfigNode back = read_back(node);
    Problems problems;
    std::string value;
    ASSERT_NE(back.find("value"), nullptr);
    EXPECT_TRUE(ValueType<std::string>::read(*back.find("value"), value, "value", problems)) << text;
    EXPECT_EQ(value, text);
  }
}

TEST(RoundTrip, KeysStayTheKeysTheyWere) {
  for (const auto& key : kNastyTexts) {
    if (key.size() > 1000) continue;  // YAML's own limit for a key on one line is 1024
    ConfigNode inner = ConfigNode::map();
    inner.set(key, ConfigNode::scalar("1"));
    ConfigNode node = ConfigNode::map();
    node.set(key, inner);
    node.set("list", ConfigNode::list({inner}));
    read_back(node);
  }
}

TEST(RoundTrip, NumbersStayTheNumbersTheyWere) {
  std::mt19937_64 bits(7);
  std::vector<double> numbers{0.0, -0.0, 1.0, -1.0, 0.1, 1e-3, 1e300, 5e-324, 1e20, 123456789.0, INFINITY, -INFINITY};
  for (int i = 0; i < 2000; ++i) {
    const uint64_t word = bits();
    double number = 0;
    std::memcpy(&number, &word, sizeof number);
    if (!std::isnan(number)) numbers.push_back(number);
  }
  ConfigNode node = ConfigNode::map();
  node.set("numbers", ValueType<std::vector<double>>::write(numbers));
  node.set("ints", ValueType<std::vector<int64_t>>::write({0, -1, INT64_MAX, INT64_MIN}));
  const ConfigNode back = read_back(node);
  std::vector<double> found;
  std::vector<int64_t> ints;
  Problems problems;
  ASSERT_TRUE(ValueType<std::vector<double>>::read(*back.find("numbers"), found, "numbers", problems))
      << lines(problems);
  ASSERT_TRUE(ValueType<std::vector<int64_t>>::read(*back.find("ints"), ints, "ints", problems)) << lines(problems);
  EXPECT_EQ(found, numbers);
  EXPECT_EQ(std::signbit(found[1]), true);
  EXPECT_EQ(ints, (std::vector<int64_t>{0, -1, INT64_MAX, INT64_MIN}));
}

// A seeded random tree of everything above.
class Trees {
 public:
  explicit Trees(unsigned seed) : bits_(seed) {}

  ConfigNode node(int depth) {
    switch (below(depth > 0 ? 6 : 3)) {
      case 0: return {};
      case 1: return ConfigNode::scalar(text(), true);
      case 2: return ConfigNode::scalar(plain());
      case 3: return list(depth);
      default: return map(depth);
    }
  }
  ConfigNode map(int depth) {
    ConfigNode map = ConfigNode::map();
    for (size_t i = below(5); i > 0; --i) map.set(text().substr(0, 900), node(depth - 1));
    return map;
  }

 private:
  ConfigNode list(int depth) {
    ConfigNode list = ConfigNode::list();
    for (size_t i = below(5); i > 0; --i) list.items.push_back(node(depth - 1));
    return list;
  }
  size_t below(size_t count) { return bits_() % count; }
  std::string plain() { return std::vector<std::string>{"1", "-1", "2.5", "true", "word", ".inf", "1e-3"}[below(7)]; }
  std::string text() {
    if (below(2) == 0) return kNastyTexts[below(kNastyTexts.size())];
    static const std::string alphabet = "ab :#-,[]{}'\"\\\n\t?!&*|>%@`~.0";
    std::string text;
    for (size_t i = below(8); i > 0; --i) text += alphabet[below(alphabet.size())];
    return text;
  }
  std::mt19937 bits_;
};

TEST(RoundTrip, RandomTreesReadBackTheSame) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    read_back(Trees(seed).map(4));
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace levin::round_trip_test
