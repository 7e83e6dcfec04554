#include "levin/loggers/event_records.h"

#include <gtest/gtest.h>

#include <cmath>

#include "levin/core/options/error.h"
#include "levin/loggers/image.h"
#include "loggers/event_reader.h"

namespace levin::event_records_test {
namespace {

using test::Fields;
using test::fields_of;
using test::raw;
using test::records_of;

// RFC 3720, B.4.
TEST(Crc32c, MatchesTheRfc) {
  std::string up;
  for (int k = 0; k < 32; ++k) up += static_cast<char>(k);
  const std::string down(up.rbegin(), up.rend());
  const std::string read_command(
      "\x01\xc0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x14\0\0\0\0\0\x04\0\0\0\0\x14\0\0\0\x18\x28\0\0\0\0\0\0\0\x02\0\0\0\0\0\0"
      "\0",
      48);
  const std::vector<std::pair<std::string, uint32_t>> known = {{std::string(32, '\0'), 0x8a9136aa},
                                                               {std::string(32, '\xff'), 0x62a8ab43},
                                                               {up, 0x46dd794e},
                                                               {down, 0x113fdb5c},
                                                               {read_command, 0xd9963a56},
                                                               {"123456789", 0xe3069283},
                                                               {"", 0}};
  for (const auto& [bytes, crc] : known) {
    EXPECT_EQ(crc32c(bytes), crc) << bytes.size();
    EXPECT_EQ(detail::crc32c_by_table(bytes), crc) << bytes.size();
  }
}

TEST(Crc32c, OfAnyLengthIsTheSameByInstructionAndByTable) {
  std::string bytes;
  for (int k = 0; k < 100; ++k) {
    EXPECT_EQ(crc32c(bytes), detail::crc32c_by_table(bytes)) << k;
    bytes += static_cast<char>(k * 37 + 11);
  }
}

// The values of the one event in a record.
Fields only_value(const std::string& record, int64_t step, double time) {
  const auto events = records_of(record);
  EXPECT_EQ(events.size(), 1u);
  Fields event = fields_of(events.at(0));
  EXPECT_EQ(raw<double>(event[1].at(0)), time);
  EXPECT_EQ(raw<int64_t>(event[2].at(0)), step);
  Fields summary = fields_of(event[5].at(0));
  EXPECT_EQ(summary[1].size(), 1u);
  return fields_of(summary[1].at(0));
}

TEST(EventRecords, BeginWithTheVersion) {
  Fields event = fields_of(records_of(version_record(12.5)).at(0));
  EXPECT_EQ(raw<double>(event[1].at(0)), 12.5);
  EXPECT_EQ(event[3].at(0), "brain.Event:2");
  EXPECT_TRUE(is_own_event_file(version_record(99) + "more"));
  EXPECT_FALSE(is_own_event_file(version_record(99).substr(0, 20)));
  WireMessage other;
  EXPECT_FALSE(is_own_event_file(framed_event(other.real(1, 99).text(3, "brain.Event:2")) + std::string(100, 'x')));
}

TEST(EventRecords, HoldAllScalarsOfARow) {
  const std::string record = scalars_record({{"a", 0.1}, {"b", NAN}}, "p-", {300, 7.25});
  Fields event = fields_of(records_of(record).at(0));
  EXPECT_EQ(raw<int64_t>(event[2].at(0)), 300);
  Fields summary = fields_of(event[5].at(0));
  ASSERT_EQ(summary[1].size(), 2u);
  Fields first = fields_of(summary[1][0]);
  EXPECT_EQ(first[1].at(0), "p-a");
  EXPECT_EQ(raw<float>(first[2].at(0)), 0.1F);
  EXPECT_TRUE(std::isnan(raw<float>(fields_of(summary[1][1])[2].at(0))));
}

TEST(EventRecords, HoldHistograms) {
  const Histogram histogram{
      .min = -1, .max = 3, .count = 5, .sum = 4, .sum_squares = 14, .edges = {-2, 0, 4}, .counts = {2, 3}};
  Fields value = only_value(histogram_record("h", histogram, {1, 2}), 1, 2);
  Fields histo = fields_of(value[5].at(0));
  EXPECT_EQ(raw<double>(histo[1].at(0)), -1);
  EXPECT_EQ(raw<double>(histo[2].at(0)), 3);
  EXPECT_EQ(raw<double>(histo[3].at(0)), 5);
  EXPECT_EQ(raw<double>(histo[4].at(0)), 4);
  EXPECT_EQ(raw<double>(histo[5].at(0)), 14);
  ASSERT_EQ(histo[6].at(0).size(), 16u);
  EXPECT_EQ(raw<double>(histo[6][0].substr(8)), 4) << "upper edges";
  EXPECT_EQ(raw<double>(histo[7].at(0)), 2);
}

TEST(EventRecords, ReplaceBytesThatAreNotUtf8) {
  Fields value = only_value(text_record("t\xff", "a\xc3", {1, 2}), 1, 2);
  EXPECT_EQ(value[1].at(0), "t\xef\xbf\xbd");
  EXPECT_EQ(fields_of(value[8].at(0))[8].at(0), "a\xef\xbf\xbd");
}

TEST(EventRecords, WriteTablesAsMarkdown) {
  EXPECT_EQ(markdown_table({{"a|b", "c"}, {{1.5, std::string("x\ny")}}}),
            "| a\\|b | c |\n| --- | --- |\n| 1.5 | x y |\n");
}

TEST(HparamsRecords, FlattenMapsAndKeepTypes) {
  ConfigNode inner = ConfigNode::map();
  inner.set("betas", ConfigNode::list({ConfigNode::scalar("0.9"), ConfigNode::scalar("0.95")}));
  ConfigNode hparams = ConfigNode::map();
  hparams.set("lr", ConfigNode::scalar("1e-3"));
  hparams.set("deep", ConfigNode::scalar("true"));
  hparams.set("id", ConfigNode::scalar("007", /*quoted=*/true));
  hparams.set("none", ConfigNode());
  hparams.set("optimizer", inner);
  const HparamList expected = {{"lr", 1e-3},
                               {"deep", true},
                               {"id", std::string("007")},
                               {"none", std::string("null")},
                               {"optimizer/betas", std::string("[0.9, 0.95]")}};
  EXPECT_EQ(flat_hparams(hparams), expected);
  EXPECT_TRUE(flat_hparams(ConfigNode()).empty());
}

TEST(PngImage, RefusesWhatIsNotAnImage) {
  const auto message = [](const LogImage& image) {
    try {
      (void)png_of(image);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({1, 1, 2, {0, 0}}),
            "png_of: an image has 1 channel (grey), 3 (red, green, blue) or 4 (with alpha), got 2.");
  EXPECT_EQ(message({0, 1, 1, {}}), "png_of: height and width of an image must be 1 to 1048576, got (0, 1, 1).");
  EXPECT_EQ(message({2, 2, 1, {0}}), "png_of: an image of (2, 2, 1) has 4 samples, got 1.");
  EXPECT_TRUE(png_of({1, 2, 4, std::vector<uint8_t>(8, 9)}).starts_with("\x89PNG"));
}

}  // namespace
}  // namespace levin::event_records_test
