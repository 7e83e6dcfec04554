// How values are formatted in a log line.
#include "levin/core/process/log_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

namespace levin::log_text_test {
namespace {

namespace fs = std::filesystem;

struct Box {
  int side;
  friend std::ostream& operator<<(std::ostream& out, const Box& box) { return out << "box of " << box.side; }
};

TEST(LogText, PutsValuesOfAllKindsInPlaceOfBraces) {
  const std::string text = "text";
  const char* none = "c";
  EXPECT_EQ(log::filled("plain"), "plain");
  EXPECT_EQ(log::filled("{} {} {} {}", text, std::string_view("view"), "literal", none), "text view literal c");
  EXPECT_EQ(log::filled("{} {} {} {}", -3, 4u, true, 'x'), "-3 4 true x");
  EXPECT_EQ(log::filled("{} {}", std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()),
            "-9223372036854775808 18446744073709551615");
  EXPECT_EQ(log::filled("{} {} {}", 0.1, 0.1f, 1e300), "0.1 0.1 1e+300");
  EXPECT_EQ(log::filled("{} {}", std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()),
            "nan -inf");
  EXPECT_EQ(log::filled("{} and {}", Box{3}, fs::path("/a")), "box of 3 and \"/a\"");
  EXPECT_EQ(log::filled("{{}} }} {{{}", 1), "{} } {1");
}

TEST(LogText, FollowsSpecs) {
  EXPECT_EQ(log::filled("{:.3f} {:.2e} {:g} {:.0f}", 0.25, 1234.5, 0.5, 2.5), "0.250 1.23e+03 0.5 2");
  EXPECT_EQ(log::filled("{:6d}|{:<6}|{:^6}|{:>6}|", 42, 42, 42, "ab"), "    42|42    |  42  |    ab|");
  EXPECT_EQ(log::filled("{:06d} {:+d} {:+.1f} {:08.3f}", -42, 7, 2.0, -1.5), "-00042 +7 +2.0 -001.500");
  EXPECT_EQ(log::filled("{:x} {:X} {:o} {:b}", 255, 255, 8, 5), "ff FF 10 101");
  EXPECT_EQ(log::filled("{:*^7}|{:-<4}|{:.2}|{:.2s}", "ab", 1, "abc", "äöü"), "**ab***|1---|ab|äö");
  EXPECT_EQ(log::filled("{:.1f}", 3), "3.0");
  EXPECT_EQ(log::filled("{:+} {:+d} {:06d}", 4u, std::numeric_limits<uint64_t>::max(), size_t{5}),
            "+4 +18446744073709551615 000005");
  EXPECT_EQ(log::filled("{:x} {:+.1f}", std::numeric_limits<uint64_t>::max(), 2u), "ffffffffffffffff +2.0");
}

// The compiler rejects format strings for which these functions return a message.
TEST(LogText, AMistakeIsFoundByTheCompiler) {
  using log::detail::Kind;
  const auto wrong_text = [](std::string_view text) {
    const char* wrong = log::detail::walk(
        text, [](std::string_view) {}, [](std::string_view) -> const char* { return nullptr; });
    return std::string(wrong == nullptr ? "" : wrong);
  };
  EXPECT_EQ(wrong_text("{} {{}} {:.3f}"), "");
  EXPECT_EQ(wrong_text("{"), "a { without its }; write {{ for the character");
  EXPECT_EQ(wrong_text("a }"), "a } without its {; write }} for the character");
  EXPECT_EQ(wrong_text("{0}"), "between { and } stands nothing, or a colon and a spec");
  const auto wrong_spec = [](std::string_view text, Kind kind) {
    const char* wrong = log::detail::wrong_spec(text, kind);
    return std::string(wrong == nullptr ? "" : wrong);
  };
  EXPECT_EQ(wrong_spec("08.3f", Kind::number), "");
  EXPECT_EQ(wrong_spec(".3d", Kind::integer), "an integer has no precision; write {:.3f}");
  EXPECT_EQ(wrong_spec("d", Kind::number), "d, x, X, o and b are for integers");
  EXPECT_EQ(wrong_spec(".3f", Kind::text), "f, e and g are for numbers");
  EXPECT_EQ(wrong_spec("s", Kind::integer), "s is for text");
  EXPECT_EQ(wrong_spec("+", Kind::text), "+ and 0 are for numbers");
  EXPECT_EQ(wrong_spec("q", Kind::text), "the type of a spec is one of d x X o b f e g s");
  EXPECT_EQ(wrong_spec("#x", Kind::integer), "a spec is [[fill]align][+][0][width][.precision][type]");
  EXPECT_EQ(wrong_spec("{^5", Kind::integer), "{ cannot fill");
  EXPECT_EQ(wrong_spec("999", Kind::integer), "a width is at most 200, a precision at most 60");
}

}  // namespace
}  // namespace levin::log_text_test
