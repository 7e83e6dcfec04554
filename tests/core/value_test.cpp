#include "levin/core/options/value.h"

#include <gtest/gtest.h>

#include <cmath>

#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"

namespace levin::value_test {
enum class Mode { min, max };
}

template <>
struct levin::EnumNames<levin::value_test::Mode> {
  using Mode = value_test::Mode;
  static constexpr std::array names{std::pair{"min", Mode::min}, std::pair{"max", Mode::max}};
};

namespace levin::value_test {
namespace {

ConfigNode plain(const std::string& text) {
  ConfigNode node = ConfigNode::scalar(text);
  node.mark = {"run.yaml", 2, 5};
  return node;
}

template <class T>
std::optional<T> value(const ConfigNode& node) {
  T found{};
  Problems problems;
  const bool good = ValueType<T>::read(node, found, "x", problems);
  EXPECT_EQ(good, problems.empty()) << node.shown();
  return good ? std::optional<T>(found) : std::nullopt;
}

template <class T>
std::string problem(const ConfigNode& node) {
  T found{};
  Problems problems;
  EXPECT_FALSE(ValueType<T>::read(node, found, "x", problems)) << node.shown();
  std::string text;
  for (const auto& line : problems.lines()) text += (text.empty() ? "" : "\n") + line;
  return text;
}

template <class T>
void expect_round_trip(const T& held) {
  EXPECT_EQ(value<T>(ValueType<T>::write(held)), held);
}

TEST(Problems, JoinPlacePathAndText) {
  Problems problems;
  problems.throw_if_any();
  problems.add({"run.yaml", 7, 3}, "trainer.max_epochs", "must be >= 1.");
  problems.add({}, "TimerOptions.duration", "bad.");
  problems.add({"run.yaml", 1, 1}, "", "not a map.");
  problems.add({}, "", "nothing known.");
  EXPECT_EQ(problems.size(), 4u);
  EXPECT_THROW(problems.throw_if_any(), ConfigError);
  try {
    problems.throw_if_any();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "run.yaml:7:3: trainer.max_epochs: must be >= 1.\nTimerOptions.duration: bad.\n"
                 "run.yaml:1:1: not a map.\nnothing known.");
  }
  Problems all;
  all.add(problems);
  all.add(problems);
  EXPECT_EQ(all.size(), 8u);
}

TEST(IntValue, TakesPlainDecimalNumbersOnly) {
  EXPECT_EQ(value<int64_t>(plain("42")), 42);
  EXPECT_EQ(value<int64_t>(plain("-1")), -1);
  EXPECT_EQ(value<int64_t>(plain("+7")), 7);
  EXPECT_EQ(value<int64_t>(plain("0")), 0);
  EXPECT_EQ(value<int64_t>(plain("9223372036854775807")), INT64_MAX);
  EXPECT_EQ(value<int64_t>(plain("-9223372036854775808")), INT64_MIN);
  for (const std::string bad : {"",     "-",    "+",     "010",  "-010",
                                "00",   "0x10", "1_000", "1e3",  "3.0",
                                "+-5",  "-+5",  "--5",   "++5",  "9223372036854775808",
                                " 1",   "1 ",   "yes",   "true", "one",
                                "1,000"}) {
    EXPECT_EQ(value<int64_t>(plain(bad)), std::nullopt) << bad;
  }
  EXPECT_EQ(value<int64_t>(ConfigNode::scalar("5", true)), std::nullopt);
  EXPECT_EQ(value<int64_t>(ConfigNode{}), std::nullopt);
  EXPECT_EQ(problem<int64_t>(plain("010")), "run.yaml:2:5: x: expected a whole number, got 010.");
}

TEST(FloatValue, TakesDecimalNumbersInfinitiesAndNan) {
  EXPECT_EQ(value<double>(plain("1e-3")), 1e-3);
  EXPECT_EQ(value<double>(plain("3")), 3.0);
  EXPECT_EQ(value<double>(plain(".5")), 0.5);
  EXPECT_EQ(value<double>(plain("5.")), 5.0);
  EXPECT_EQ(value<double>(plain("-1.5E+2")), -150.0);
  EXPECT_EQ(value<double>(plain("+0.5")), 0.5);
  for (const std::string text : {".inf", "+.inf", ".Inf", ".INF", "inf", "Infinity"})
    EXPECT_EQ(value<double>(plain(text)), INFINITY);
  for (const std::string text : {"-.inf", "-.INF", "-inf"}) EXPECT_EQ(value<double>(plain(text)), -INFINITY);
  for (const std::string text : {".nan", ".NaN", ".NAN", "nan"})
    EXPECT_TRUE(std::isnan(value<double>(plain(text)).value()));
  for (const std::string bad :
       {"", ".", "e5", "1e", "00.5", "0x1p3", "1_0.5", "1e400", "1,5", "+-.5", "-+1.5", "infi", "true", "1.5.2"}) {
    EXPECT_EQ(value<double>(plain(bad)), std::nullopt) << bad;
  }
  EXPECT_EQ(value<double>(ConfigNode::scalar("0.5", true)), std::nullopt);
  EXPECT_EQ(problem<double>(plain("fast")), "run.yaml:2:5: x: expected a number, got fast.");
}

TEST(BoolValue, TakesTrueAndFalseOnly) {
  for (const std::string text : {"true", "True", "TRUE"}) EXPECT_EQ(value<bool>(plain(text)), true);
  for (const std::string text : {"false", "False", "FALSE"}) EXPECT_EQ(value<bool>(plain(text)), false);
  for (const std::string bad : {"yes", "no", "on", "1", "0", "tRue", ""})
    EXPECT_EQ(value<bool>(plain(bad)), std::nullopt);
  EXPECT_EQ(value<bool>(ConfigNode::scalar("true", true)), std::nullopt);
  EXPECT_EQ(problem<bool>(plain("yes")), "run.yaml:2:5: x: expected true or false, got yes.");
}

TEST(StringValue, TakesAnyScalarAsWritten) {
  EXPECT_EQ(value<std::string>(plain("010")), "010");
  EXPECT_EQ(value<std::string>(plain("true")), "true");
  EXPECT_EQ(value<std::string>(ConfigNode::scalar("", true)), "");
  EXPECT_EQ(problem<std::string>(ConfigNode{}), "x: expected a string, got null.");
  EXPECT_EQ(problem<std::string>(ConfigNode::list()), "x: expected a string, got a list.");
}

TEST(ReadsAsString, KnowsWhatYamlTakesForSomethingElse) {
  for (const std::string other : {"", "null", "~", "true", "FALSE", "1", "-1", "1.5", "1e3", ".inf", ".nan"}) {
    EXPECT_FALSE(reads_as_string(other)) << other;
  }
  for (const std::string word : {"yes", "010", "word", "nul", "1e400", "+-5", "."})
    EXPECT_TRUE(reads_as_string(word)) << word;
}

TEST(OptionalValue, TakesNull) {
  using Maybe = std::optional<int64_t>;
  EXPECT_EQ(value<Maybe>(ConfigNode{}), std::optional<Maybe>(Maybe()));
  EXPECT_EQ(value<Maybe>(plain("3")), Maybe(3));
  EXPECT_EQ(ValueType<Maybe>::name(), "int or null");
  EXPECT_EQ(problem<Maybe>(plain("x")), "run.yaml:2:5: x: expected a whole number, got x.");
  EXPECT_TRUE(ValueType<Maybe>::write(std::nullopt).is_null());
  expect_round_trip(Maybe(5));
}

TEST(ListValue, NamesEachBadItem) {
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(value<Ints>(ConfigNode::list({plain("1"), plain("2")})), (Ints{1, 2}));
  EXPECT_EQ(problem<Ints>(ConfigNode::list({plain("a"), plain("1"), plain("b")})),
            "run.yaml:2:5: x[0]: expected a whole number, got a.\nrun.yaml:2:5: x[2]: expected a whole number, got b.");
  EXPECT_EQ(problem<Ints>(plain("1")), "run.yaml:2:5: x: expected list of int, got 1.");
  expect_round_trip(Ints{});
  expect_round_trip(std::vector<std::vector<std::string>>{{"a", "5"}, {}});
}

TEST(ArrayValue, HasAFixedLength) {
  using Betas = std::array<double, 2>;
  EXPECT_EQ(value<Betas>(ConfigNode::list({plain("0.9"), plain("0.999")})), (Betas{0.9, 0.999}));
  EXPECT_EQ(problem<Betas>(ConfigNode::list({plain("0.9")})), "x: expected list of 2 float, got a list.");
  expect_round_trip(Betas{0.1, 1});
}

TEST(MapValue, ReadsKeysAndValues) {
  using Schedule = std::map<int64_t, int64_t>;
  ConfigNode node = ConfigNode::map();
  node.set("0", plain("1"));
  node.set("4", plain("8"));
  EXPECT_EQ(value<Schedule>(node), (Schedule{{0, 1}, {4, 8}}));
  node.set("five", plain("8"), {"run.yaml", 9, 1});
  node.set("6", plain("x"));
  EXPECT_EQ(
      problem<Schedule>(node),
      "run.yaml:9:1: x.five: expected a whole number, got five.\nrun.yaml:2:5: x.6: expected a whole number, got x.");
  expect_round_trip(Schedule{{-1, 2}, {3, 4}});
  expect_round_trip(std::map<std::string, double>{{"a b", 0.5}, {"1", 2}});
}

TEST(VariantValue, TheFirstAlternativeThatTakesTheValueWins) {
  using Number = std::variant<int64_t, double, std::string>;
  EXPECT_EQ(value<Number>(plain("3")), Number(int64_t{3}));
  EXPECT_EQ(value<Number>(plain("3.0")), Number(3.0));
  EXPECT_EQ(value<Number>(plain("auto")), Number("auto"));
  EXPECT_EQ(value<Number>(ConfigNode::scalar("3", true)), Number("3"));
  EXPECT_EQ(ValueType<Number>::name(), "int or float or string");
  EXPECT_EQ(problem<Number>(ConfigNode::list()), "x: expected int or float or string, got a list.");
  for (const Number& number : {Number(int64_t{-3}), Number(1e20), Number("3"), Number("")}) expect_round_trip(number);
}

TEST(VariantValue, TellsWhatIsWrongInsideTheAlternativeThatFits) {
  using Devices = std::variant<int64_t, std::vector<int64_t>>;
  EXPECT_EQ(problem<Devices>(ConfigNode::list({plain("1"), plain("b")})),
            "run.yaml:2:5: x[1]: expected a whole number, got b.");
  EXPECT_EQ(problem<Devices>(plain("b")), "run.yaml:2:5: x: expected int or list of int, got b.");
}

TEST(EnumValue, TakesItsWordsAndSuggestsTheNearest) {
  EXPECT_EQ(value<Mode>(plain("max")), Mode::max);
  EXPECT_EQ(value<Mode>(ConfigNode::scalar("min", true)), Mode::min);
  EXPECT_EQ(ValueType<Mode>::name(), "min|max");
  EXPECT_EQ(problem<Mode>(plain("maxx")),
            "run.yaml:2:5: x: unknown value maxx. Known: min, max. Did you mean \"max\"?");
  EXPECT_EQ(problem<Mode>(ConfigNode{}), "x: unknown value null. Known: min, max.");
  EXPECT_EQ(enum_name(Mode::max), "max");
  expect_round_trip(Mode::max);
}

TEST(ScalarValues, WriteWhatReadsBackToTheSame) {
  for (const double number : std::initializer_list<double>{0.0, 0.1, -1.0, 1e-300, 1e20, INFINITY})
    expect_round_trip(number);
  for (const int64_t number : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) expect_round_trip(number);
  for (const bool flag : {true, false}) expect_round_trip(flag);
  for (const std::string text : {"", "5", "true", "null", "a b"}) expect_round_trip(text);
  EXPECT_TRUE(std::isnan(value<double>(ValueType<double>::write(NAN)).value()));
}

TEST(Problems, EscapeWhatATerminalWouldObey) {
  Problems problems;
  problems.add({"a\x1b[2J.yaml", 1, 2}, std::string(2000, 'k') + "\n", "got \x07");
  const std::string line = problems.lines()[0];
  EXPECT_TRUE(line.starts_with("a\\x1b[2J.yaml:1:2: kkk")) << line;
  EXPECT_TRUE(line.ends_with("(2001 bytes): got \\x07")) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

// A key may end as an item's path does.
TEST(Problems, NameAKeyThatEndsInABracketAndIsNotAnItem) {
  Problems problems;
  problems.add({"--traine]+=Timer", 0, 0}, "traine]", "unknown");
  const std::string line = problems.lines()[0];
  EXPECT_NE(line.find("traine]"), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with("unknown")) << line;
}

TEST(JoinPath, LeavesOutAnEmptyParent) {
  EXPECT_EQ(join_path("", "a"), "a");
  EXPECT_EQ(join_path("a", "b"), "a.b");
}

TEST(EnumOption, TakesAnEnumeratorOrItsName) {
  struct Options {
    EnumOption<Mode> mode = Mode::min;
    std::optional<EnumOption<Mode>> other = std::nullopt;
  };
  EXPECT_EQ(Options{}.mode, Mode::min);
  EXPECT_EQ(Options{.mode = "max"}.mode, Mode::max);
  EXPECT_EQ(Options{.mode = std::string("max")}.mode, Options{.mode = Mode::max}.mode);
  EXPECT_EQ(Options{.other = "min"}.other, Mode::min);
}

TEST(EnumOption, ListsTheNamesForAWrongOne) {
  try {
    (void)EnumOption<Mode>("mux");
    FAIL();
  } catch (const ConfigError& error) {
    const std::string found = error.what();
    EXPECT_NE(found.find("value_test.cpp:"), std::string::npos) << found;
    EXPECT_NE(found.find(": unknown value \"mux\" of an option. Known: min, max. Did you mean \"max\"?"),
              std::string::npos)
        << found;
  }
}

TEST(EnumOption, IsReadAndWrittenLikeItsEnum) {
  expect_round_trip(EnumOption<Mode>(Mode::max));
  EXPECT_EQ(ValueType<EnumOption<Mode>>::name(), ValueType<Mode>::name());
  EXPECT_EQ(problem<EnumOption<Mode>>(plain("mux")), problem<Mode>(plain("mux")));
}

}  // namespace
}  // namespace levin::value_test
