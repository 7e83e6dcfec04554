#include "levin/yaml/yaml_file.h"

#include <gtest/gtest.h>

#include "cli/config_files.h"

namespace levin::yaml_file_test {
namespace {

using test::expect_parts;
using testing::ConfigFiles;
using testing::lines;

ConfigNode read(const std::string& text) {
  Problems problems;
  ConfigNode node = read_yaml_text(text, "run.yaml", problems);
  EXPECT_TRUE(problems.empty()) << lines(problems);
  return node;
}

std::string errors(const std::string& text) {
  Problems problems;
  (void)read_yaml_text(text, "run.yaml", problems);
  return lines(problems);
}

TEST(YamlFile, ReadsMapsListsScalarsAndNullWithTheirPlaces) {
  const ConfigNode node = read("trainer:\n  max_epochs: 3\n  callbacks: [a, 'b']\nmodel: ~\n");
  const ConfigNode* trainer = node.find("trainer");
  ASSERT_NE(trainer, nullptr);
  const ConfigNode* epochs = trainer->find("max_epochs");
  ASSERT_NE(epochs, nullptr);
  EXPECT_EQ(epochs->text, "3");
  EXPECT_FALSE(epochs->quoted);
  EXPECT_EQ(epochs->mark.str(), "run.yaml:2:15");
  EXPECT_EQ(trainer->entries[0].key_mark.str(), "run.yaml:2:3");
  const ConfigNode* callbacks = trainer->find("callbacks");
  ASSERT_EQ(callbacks->items.size(), 2u);
  EXPECT_EQ(callbacks->items[1].text, "b");
  EXPECT_TRUE(callbacks->items[1].quoted);
  EXPECT_EQ(callbacks->items[1].mark.str(), "run.yaml:3:18");
  EXPECT_TRUE(node.find("model")->is_null());
}

TEST(YamlFile, CountsColumnsInCharacters) {
  Problems problems;
  const ConfigNode node = read_yaml_text("{é: ü, b: x}", "run.yaml", problems);
  EXPECT_EQ(node.find("b")->mark.str(), "run.yaml:1:11");
}

TEST(YamlFile, AnEmptyFileIsAnEmptyMap) {
  for (const std::string text : {"", "\n", "# only a comment\n", "---\n", "\xef\xbb\xbf", "{}"}) {
    const ConfigNode node = read(text);
    EXPECT_TRUE(node.is_map()) << text;
    EXPECT_TRUE(node.entries.empty()) << text;
  }
}

TEST(YamlFile, JsonIsYaml) {
  const ConfigFiles files;
  const std::string path = files.write("run.json",
                                       "{\n\t\"trainer\": {\"max_epochs\": 3, \"ok\": true, \"none\": null},\n"
                                       "\t\"data\":{\"files\":[\"a b\",\"\\u00e9\\n\"], \"x\":-1.5e-3}\n}\n");
  Problems problems;
  const ConfigNode node = read_yaml_file(path, problems);
  ASSERT_TRUE(problems.empty()) << lines(problems);
  EXPECT_EQ(node.find("trainer")->find("max_epochs")->text, "3");
  EXPECT_FALSE(node.find("trainer")->find("ok")->quoted);
  EXPECT_TRUE(node.find("trainer")->find("none")->is_null());
  EXPECT_EQ(node.find("data")->find("files")->items[1].text, "é\n");
  EXPECT_EQ(node.find("data")->find("x")->text, "-1.5e-3");
}

TEST(YamlFile, ReadsWindowsLineEndsAndAByteOrderMark) {
  const ConfigNode node = read(
      "\xef\xbb\xbf"
      "a: 1\r\nb:\r\n  - x\r\n");
  EXPECT_EQ(node.find("a")->text, "1");
  EXPECT_EQ(node.find("b")->items[0].text, "x");
  EXPECT_EQ(node.find("b")->items[0].mark.str(), "run.yaml:3:5");
}

TEST(YamlFile, QuotedAndBlockScalarsAreStrings) {
  const ConfigNode node = read("a: '1'\nb: \"true\"\nc: |\n  2\nd: !!str 3\ne: !!int 4\nf: 'it''s'\n");
  for (const std::string key : {"a", "b", "c", "d", "f"}) EXPECT_TRUE(node.find(key)->quoted) << key;
  EXPECT_FALSE(node.find("e")->quoted);
  EXPECT_EQ(node.find("f")->text, "it's");
  for (const std::string text : {"!!int", "!!float \"\"", "!!int 'null'", "!!null x", "!!bool ~"}) {
    EXPECT_TRUE(read("a: " + text + "\n").find("a")->is_null()) << text;
  }
}

TEST(YamlFile, AliasesRepeatTheirAnchorsValue) {
  const ConfigNode node =
      read("base: &b {lr: 0.1, list: [1, 2]}\ncopy: *b\nname: &n x\nsame: *n\n&k key: 1\nkeys: *k\n");
  EXPECT_TRUE(node.find("copy")->same_as(*node.find("base")));
  EXPECT_EQ(node.find("same")->text, "x");
  EXPECT_EQ(node.find("keys")->text, "key");
}

TEST(YamlFile, ADuplicateKeyShowsBothPlaces) {
  expect_parts(errors("trainer:\n  lr: 0.1\n  x: 1\n  lr: 0.2\n"),
               {"run.yaml:4:3: trainer.lr: duplicate key \"lr\"", "first at run.yaml:2:3", "Remove one"});
}

TEST(YamlFile, TellsAllProblemsOfAFileAtOnce) {
  const std::string text = errors("a: 1\na: 2\nb: !foo 3\n? [x]\n: 1\n<<: {}\nc: [1, , 2]\n");
  expect_parts(text, {"run.yaml:2:1: a: duplicate key", "run.yaml:3:4: b: unknown tag \"!foo\"",
                      "run.yaml:4:3: a key must be text, got a list", "run.yaml:6:1: merge keys (<<)",
                      "run.yaml:7:8: c[1]: nothing between two commas"});
}

TEST(YamlFile, RefusesASecondDocument) {
  expect_parts(errors("a: 1\n---\nb: 2\n"), {"run.yaml:2:1", "a second document starts here", "--config"});
  expect_parts(errors("a: 1\n...\nb: 2\n"), {"run.yaml:3:1", "a second document"});
  EXPECT_EQ(errors("---\na: 1\n...\n"), "");
}

TEST(YamlFile, RefusesTagsThatOtherToolsWouldRun) {
  expect_parts(errors("a: !!python/object/apply:os.system ['rm']\n"),
               {"run.yaml:1:4: a: unknown tag", "python/object"});
}

TEST(YamlFile, RefusesAnOpenQuoteThatTheParserLetsPass) {
  expect_parts(errors("a: 1\nb: 'x\nc: 2\n"), {"run.yaml:2:4: b: not YAML", "' is never closed", "closing quote"});
  expect_parts(errors("a: \"x\\\"\n"), {"run.yaml:1:4: a: not YAML", "\" is never closed"});
  expect_parts(errors("a: &n !!str 'x\n"), {"run.yaml:1:4", "is never closed"});
  expect_parts(errors("'x\n"), {"run.yaml:1:1", "is never closed"});
}

TEST(YamlFile, RefusesAliasesItCannotResolve) {
  expect_parts(errors("a: *nobody\n"), {"run.yaml:1:4: a: not YAML: no &anchor"});
  expect_parts(errors("a: &x [1, *x]\n"), {"run.yaml:1:11: a[1]: this alias is inside the value that it repeats"});
  expect_parts(errors("x: &k a\n*k : 2\n"), {"run.yaml:2:1", "an alias cannot be a key"});
}

TEST(YamlFile, RefusesKeysThatAreNotStrings) {
  expect_parts(errors("{a: 1}: 2\n"), {"run.yaml:1:1"});
  expect_parts(errors("~: 2\n"), {"run.yaml:1:1", "a key is missing here"});
  EXPECT_EQ(read("'~': 2\n").entries[0].key, "~");
}

TEST(YamlFile, ExplainsSyntaxErrorsInPlainWords) {
  expect_parts(errors("a: 1\n  b: 2\n"), {"run.yaml:2:4: not YAML", "indentation"});
  expect_parts(errors("a: b: c\n"), {"run.yaml:1:5: not YAML", "quote text that holds \": \""});
  expect_parts(errors("a: [1,\n  2\nb: 3\n"), {"run.yaml:1:4: a: not YAML: this \"[\" is never closed"});
  expect_parts(errors("a: {b: 1\n"), {"run.yaml:1:4: a: not YAML: this \"{\" is never closed"});
  expect_parts(errors("a: ]\n"), {"run.yaml:1:4: a: not YAML", "nothing opened"});
  expect_parts(errors("a: @x\n"), {"run.yaml:1:4: a: not YAML", "Quote the text"});
  expect_parts(errors("a: 'x' y\n"), {"run.yaml:1:8", "not YAML"});
  expect_parts(errors("a: \"\\ud83d\\ude00\"\n"), {"run.yaml:1:", "\\U and its 8 hex digits"});
  expect_parts(errors("a:\n\t- 1\n"), {"run.yaml:2:"});
}

TEST(YamlFile, ForgottenSpacesAfterAColonAreErrors) {
  expect_parts(errors("lr:0.1\n"), {"run.yaml:1:1: expected keys with values", "got lr:0.1", "space after the colon"});
  expect_parts(errors("model: {lr:0.1}\n"),
               {"run.yaml:1:", "the key \"lr:0.1\" has no value", "space after the colon"});
}

TEST(YamlFile, RefusesTextThatIsNotUtf8) {
  expect_parts(errors("a: 1\nb: \xc3\x28\n"), {"run.yaml:2:4: not UTF-8 (byte 0xc3)", "Save the file as UTF-8"});
  for (const std::string bad : {"\xff\xfe", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\x80"}) {
    expect_parts(errors("a: " + bad), {"run.yaml:1:4: not UTF-8"});
  }
  EXPECT_EQ(errors("a: \xf0\x9f\x98\x80\xe2\x82\xac\xed\x9f\xbf\n"), "");
}

TEST(YamlFile, RefusesNulAndControlCharacters) {
  expect_parts(errors(std::string("a: 1\n\0b: 2\n", 12)), {"run.yaml:2:1: a control character (byte 0x00)"});
  expect_parts(errors("a: x\x07\n"), {"run.yaml:1:5: a control character (byte 0x07)", "\\x07"});
}

TEST(YamlFile, AMissingFileNamesPathAndCause) {
  Problems problems;
  (void)read_yaml_file("/nowhere/run.yaml", problems);
  expect_parts(lines(problems), {"/nowhere/run.yaml", "No such file"});
}

TEST(YamlValue, ReadsListsMapsAndQuotesAndTakesTheRestAsText) {
  const auto value = [](const std::string& text) {
    Problems problems;
    ConfigNode node = read_yaml_value(text, {"--x=" + text, 0, 0}, problems);
    EXPECT_TRUE(problems.empty()) << lines(problems);
    return node;
  };
  EXPECT_EQ(value("5").text, "5");
  EXPECT_FALSE(value("5").quoted);
  EXPECT_TRUE(value("'5'").quoted);
  EXPECT_TRUE(value("null").is_null());
  EXPECT_TRUE(value("").is_null());
  EXPECT_TRUE(value("[]").is_list());
  EXPECT_EQ(value("[1, {a: b}]").items[1].find("a")->mark.str(), "--x=[1, {a: b}]");
  for (const std::string text : {"*.txt", "a: b", "@x", "&x", "%d", "!x", "a #b", "- x", "x]"}) {
    EXPECT_EQ(value(text).text, text);
  }
}

TEST(YamlValue, PointsAtTheCommandLine) {
  Problems problems;
  (void)read_yaml_value("[1, 2", {"--x=[1, 2", 0, 0}, problems);
  (void)read_yaml_value("{a}b", {"--y={a}b", 0, 0}, problems);
  ASSERT_EQ(problems.size(), 2u);
  expect_parts(problems.lines()[0], {"--x=[1, 2: ", "never closed"});
  expect_parts(problems.lines()[1], {"--y={a}b: "});
}

}  // namespace
}  // namespace levin::yaml_file_test
