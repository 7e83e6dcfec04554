// The values of a checkpoint as JSON: what cannot be read again is not written, and malicious text costs little.
#include "levin/checkpoint/values_json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>

#include "levin/checkpoint/strict_json.h"
#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/sanitized.h"

namespace levin::values_json_test {
namespace {

using test::error_of;
using test::has;
using test::kSanitized;

std::string error_of_writing(const ConfigNode& values) {
  return error_of<CheckpointError>([&] { (void)values_to_json(values); });
}

std::string error_of_reading(const std::string& text) {
  return error_of<CheckpointError>([&] { (void)values_from_json(text); });
}

ConfigNode nested(int depth, ConfigNode innermost) {
  for (int i = 0; i < depth; ++i) innermost = ConfigNode::list({innermost});
  return innermost;
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

double seconds_used() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(ValuesJson, MapsThatLookLikeEscapesComeBackAsTheyWere) {
  for (const std::string text :
       {R"({"map":{"plain":"x"}})", R"({"map":{"map":{"plain":"x"}}})", R"({"map":{"plain":1}})",
        R"({"a":{"plain":"1e-3"},"b":{"map":{"map":{"map":{"plain":"1e-3"}}}}})",
        R"([{"plain":"[1]"},{"map":{"plain":{}}}])"}) {
    EXPECT_EQ(values_to_json(values_from_json(text)), text);
  }
  const ConfigNode plain = values_from_json(R"({"plain":"1e-3"})");
  EXPECT_TRUE(plain.is_scalar() && !plain.quoted && plain.text == "1e-3");
  const ConfigNode map = values_from_json(R"({"map":{"plain":"1e-3"}})");
  EXPECT_TRUE(map.is_map() && map.find("plain") != nullptr && map.find("plain")->quoted);
}

TEST(ValuesJson, WritesNothingThatNestsTooDeepToBeRead) {
  EXPECT_EQ(error_of_writing(nested(kMaxJsonDepth, ConfigNode())), "");
  EXPECT_EQ(error_of_reading(values_to_json(nested(kMaxJsonDepth, ConfigNode()))), "");
  EXPECT_TRUE(has(error_of_writing(nested(kMaxJsonDepth + 1, ConfigNode())), "deeper than 64"));
  EXPECT_TRUE(has(error_of_reading(repeated("[", kMaxJsonDepth + 1) + repeated("]", kMaxJsonDepth + 1)), "deeper"));
  EXPECT_TRUE(has(error_of_reading(repeated("[", 1'000'000)), "deeper"));
  EXPECT_TRUE(has(error_of_reading(repeated("{\"a\":", 100'000)), "deeper"));
  // An unquoted text takes a map of its own.
  EXPECT_EQ(error_of_writing(nested(kMaxJsonDepth - 1, ConfigNode::scalar("1e-3"))), "");
  EXPECT_TRUE(has(error_of_writing(nested(kMaxJsonDepth, ConfigNode::scalar("1e-3"))), "deeper"));
}

TEST(ValuesJson, WritesNothingThatHoldsTooMuchToBeRead) {
  ConfigNode list = ConfigNode::list();
  list.items.resize(kMaxJsonValues - 1);
  EXPECT_EQ(error_of_writing(list), "");
  EXPECT_EQ(error_of_reading(values_to_json(list)), "");
  list.items.resize(kMaxJsonValues);
  EXPECT_TRUE(has(error_of_writing(list), "more than 500000"));
  EXPECT_TRUE(has(error_of_reading("[" + repeated("0,", 500'000) + "0]"), "Keep large lists in a tensor"));
}

// Looking each key up among those before it would take minutes.
TEST(ValuesJson, ManyKeysCostLittle) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"key" + std::to_string(i) + "\":0,";
  const double start = seconds_used();
  EXPECT_EQ(error_of_reading(text + "\"last\":0}"), "");
  EXPECT_TRUE(has(error_of_reading(text + "\"key7\":0}"), "\"key7\" twice"));
  EXPECT_EQ(values_to_json(values_from_json(text + "\"last\":0}")), text + "\"last\":0}");
  const auto ordered = detail::parse_strictly<nlohmann::ordered_json>(text + "\"last\":0}");
  EXPECT_EQ(ordered.dump(), text + "\"last\":0}") << "in the order of the text";
  EXPECT_LT(seconds_used() - start, kSanitized ? 100.0 : 10.0);
}

TEST(ValuesJson, ReportsTheOffsetOfInvalidJson) {
  EXPECT_TRUE(has(error_of_reading("{\"a\":1,}"), "not JSON at byte 8 of 8"));
  EXPECT_TRUE(has(error_of_reading(""), "not JSON at byte"));
  EXPECT_TRUE(has(error_of_reading("[1e999]"), "not readable as JSON"));
  EXPECT_TRUE(has(error_of_reading("\"\xff\""), "not JSON at byte 2 of 3"));
}

}  // namespace
}  // namespace levin::values_json_test
