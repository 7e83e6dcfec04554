#include <gtest/gtest.h>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin::byte_size_test {
namespace {

TEST(ParseByteSize, ReadsPowersOfTwoAndOfTen) {
  EXPECT_EQ(parse_byte_size("11GiB").bytes, int64_t{11} << 30);
  EXPECT_EQ(parse_byte_size("512 MiB").bytes, int64_t{512} << 20);
  EXPECT_EQ(parse_byte_size("0.5KiB").bytes, 512);
  EXPECT_EQ(parse_byte_size("1.5GB").bytes, 1500000000);
  EXPECT_EQ(parse_byte_size("3kB").bytes, 3000);
  EXPECT_EQ(parse_byte_size("17B").bytes, 17);
  EXPECT_EQ(parse_byte_size("17").bytes, 17);
}

TEST(ParseByteSize, ShowsWhatIsNone) {
  for (const std::string bad :
       {"", "GiB", "-1GiB", "1 parsec", "11GiB of it", "nan", "inf", "0x10", "1e30GiB", "99999999TiB", "1,5GiB"}) {
    try {
      (void)parse_byte_size(bad);
      ADD_FAILURE() << "\"" << bad << "\" was taken";
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.find("\"" + bad + "\" is not an amount of memory"), 0U) << what;
      EXPECT_NE(what.find("11GiB"), std::string::npos);
    }
  }
}

TEST(ByteSizeText, ChoosesTheLargestUnitThatFits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(bytes_text(uint64_t{5} << 50), "5120.0 TiB");
  EXPECT_EQ(decimal_bytes_text(512e3), "512 kB");
  EXPECT_EQ(decimal_bytes_text(1.34e9), "1.3 GB");
}

TEST(ByteSizeValue, WritesWhatReadsBackToTheSame) {
  for (const int64_t bytes : {int64_t{0}, int64_t{17}, int64_t{1024}, int64_t{1500000000}, int64_t{11} << 30}) {
    ByteSize back;
    Problems problems;
    EXPECT_TRUE(ValueType<ByteSize>::read(ValueType<ByteSize>::write({bytes}), back, "budget", problems));
    EXPECT_EQ(back.bytes, bytes);
  }
  EXPECT_EQ(ValueType<ByteSize>::write({int64_t{11} << 30}).text, "11GiB");
}

}  // namespace
}  // namespace levin::byte_size_test
