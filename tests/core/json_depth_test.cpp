#include "levin/core/files/json_depth.h"

#include <gtest/gtest.h>

namespace levin::json_depth_test {
namespace {

std::string nested(size_t depth, const std::string& inside = "") {
  return std::string(depth, '[') + inside + std::string(depth, ']');
}

TEST(JsonDepth, CountsWhatIsOpenAtOnce) {
  EXPECT_FALSE(json_nests_deeper("", 0));
  EXPECT_FALSE(json_nests_deeper("1", 0));
  EXPECT_TRUE(json_nests_deeper("[]", 0));
  EXPECT_FALSE(json_nests_deeper("[{}, {}, [1]]", 2));
  EXPECT_TRUE(json_nests_deeper("[{}, {}, [{}]]", 2));
  EXPECT_FALSE(json_nests_deeper(nested(kMaxJsonNesting)));
  EXPECT_TRUE(json_nests_deeper(nested(kMaxJsonNesting + 1)));
}

TEST(JsonDepth, LeavesOutTheBracketsOfStrings) {
  EXPECT_FALSE(json_nests_deeper(R"(["[[", "\"[[", "\\"])", 1));
  EXPECT_TRUE(json_nests_deeper(R"(["\\", [1]])", 1));
  EXPECT_FALSE(json_nests_deeper("]]][]", 1)) << "no JSON, and no count below 0";
  EXPECT_FALSE(json_nests_deeper("\"\\", 0)) << "the end after a backslash";
}

TEST(JsonDepth, DiscardsWhatNestsTooDeepAndWhatIsNotJson) {
  EXPECT_TRUE(parse_json("{").is_discarded());
  EXPECT_TRUE(parse_json(nested(1'000'000)).is_discarded());
  EXPECT_EQ(parse_json(nested(kMaxJsonNesting, "7")).dump(), nested(kMaxJsonNesting, "7"));
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(R"({"b": 1, "a": 2})").dump(), R"({"b":1,"a":2})");
}

}  // namespace
}  // namespace levin::json_depth_test
