#include "levin/data/sets/idx.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::idx_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

std::string gzipped(const TemporaryFolder& folder, const std::string& content) {
  const std::string path = folder / "made.gz";
  const gzFile file = gzopen(path.c_str(), "wb9");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Two int16: 1, -2.
const std::string kShorts = bytes({0, 0, 0x0B, 1, 0, 0, 0, 2, 0, 1, 0xFF, 0xFE});

TEST(ReadIdx, ReadsEveryTypeBigEndian) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& content) { return read_idx(folder.write("a", content)); };
  EXPECT_TRUE(at::equal(read(kShorts), at::tensor({1, -2}, at::kShort)));
  EXPECT_TRUE(at::equal(read(bytes({0, 0, 0x08, 2, 0, 0, 0, 1, 0, 0, 0, 2, 200, 7})),
                        at::tensor({200, 7}, at::kByte).view({1, 2})));
  EXPECT_TRUE(at::equal(read(bytes({0, 0, 0x09, 1, 0, 0, 0, 1, 0xFB})), at::tensor({-5}, at::kChar)));
  EXPECT_TRUE(at::equal(read(bytes({0, 0, 0x0C, 1, 0, 0, 0, 1, 0, 1, 0, 0})), at::tensor({65536}, at::kInt)));
  EXPECT_TRUE(at::equal(read(bytes({0, 0, 0x0D, 1, 0, 0, 0, 1, 0x3F, 0xC0, 0, 0})), at::tensor({1.5F})));
  EXPECT_TRUE(at::equal(read(bytes({0, 0, 0x0E, 1, 0, 0, 0, 1, 0xBF, 0xF8, 0, 0, 0, 0, 0, 0})),
                        at::tensor({-1.5}, at::kDouble)));
}

TEST(ReadIdx, ReadsGzippedFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.gz", gzipped(folder, kShorts));
  EXPECT_TRUE(at::equal(read_idx(path), at::tensor({1, -2}, at::kShort)));
}

TEST(ReadIdx, NamesFileByteExpectedAndSeenOfAMalformedFile) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& content) {
    const std::string path = folder.write("bad.idx", content);
    return error_of<DataError>([&] { (void)read_idx(path); });
  };
  EXPECT_TRUE(holds(error(bytes({1, 0, 8, 1})), {"bad.idx: byte 0:", "expected 00 00", "saw 01 00"}));
  EXPECT_TRUE(holds(error(bytes({0, 0, 0x0A, 1})), {"byte 2:", "unknown type", "saw 0a"}));
  EXPECT_TRUE(holds(error(bytes({0, 0, 8, 0})), {"byte 3:", "saw 0"}));
  EXPECT_TRUE(holds(error(bytes({0, 0, 8})), {"byte 3:", "expected 4 bytes of magic number", "saw 3"}));
  EXPECT_TRUE(holds(error(kShorts.substr(0, 6)), {"byte 6:", "dimension 0", "saw 2"}));
  EXPECT_TRUE(holds(error(kShorts.substr(0, 11)), {"byte 8:", "expected 4 bytes of values", "saw 3"}));
  EXPECT_TRUE(holds(error(kShorts + "x"), {"byte 12:", "trailing", "saw 78"}));
  const std::string huge = bytes({0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255});
  EXPECT_TRUE(holds(error(huge), {"byte 8:", "multiply", "4294967295"}));
  const std::string none_of_huge =
      bytes({0, 0, 8, 4, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255});
  EXPECT_TRUE(holds(error(none_of_huge), {"byte 12:", "multiply", "4294967295"}));
  EXPECT_TRUE(holds(error(""), {"byte 0:", "saw 0"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read_idx(folder / "none"); }), {"none", "No such file"}));
}

TEST(ReadIdx, RefusesDamagedAndTruncatedGzip) {
  const TemporaryFolder folder;
  const std::string good = gzipped(folder, kShorts);
  const auto error = [&](const std::string& content) {
    const std::string path = folder.write("bad.gz", content);
    return error_of<DataError>([&] { (void)read_idx(path); });
  };
  std::string bad_crc = good;
  bad_crc[bad_crc.size() - 8] = static_cast<char>(bad_crc[bad_crc.size() - 8] ^ 1);
  EXPECT_TRUE(holds(error(bad_crc), {"bad.gz: byte ", "damaged gzip data", "check"}));
  EXPECT_TRUE(holds(error(good.substr(0, good.size() - 4)), {"bad.gz: byte ", "unexpected end of file"}));
}

TEST(ReadIdx, TakesNoMemoryForWhatTheFileCannotHold) {
  const TemporaryFolder folder;
  const std::string header = bytes({0, 0, 8, 1, 0x7F, 0xFF, 0xFF, 0xFF});  // 2 GiB promised
  const std::string zipped = folder.write("lie.gz", gzipped(folder, header + "abc"));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read_idx(zipped); }), {"2147483647 bytes", "cannot hold"}));
  const std::string plain = folder.write("lie", header + "abc");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read_idx(plain); }), {"2147483647 bytes", "saw 3"}));
  const std::string zeros =
      folder.write("zeros.gz", gzipped(folder, bytes({0, 0, 8, 1, 0, 1, 0, 0}) + std::string(65536, '\0')));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read_idx(zeros, 65535); }), {"65536 bytes", "65535 allowed"}));
  EXPECT_EQ(read_idx(zeros).numel(), 65536);
}

}  // namespace
}  // namespace levin::idx_test
