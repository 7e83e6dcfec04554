#include "levin/core/files/checksum.h"

#include <gtest/gtest.h>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::checksum_test {
namespace {

using Kind = Checksum::Kind;

TEST(Checksum, MatchesKnownDigests) {  // RFC 1321 and FIPS 180-2 give the digests of "abc"
  const test::TemporaryFolder folder;
  const std::string path = folder.write("abc", "abc");
  EXPECT_EQ(file_checksum(path, Kind::md5), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(file_checksum(path, Kind::sha256), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(file_checksum(path, Kind::sha1), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_TRUE(test::holds(test::error_of<Error>([&] { (void)file_checksum(folder / "no", Kind::md5); }),
                          {"/no", "No such file"}));
}

TEST(Checksum, MatchesTheCheckValuesOfCrcs) {  // of "123456789", as catalogues of CRCs give them
  EXPECT_EQ(checksum_of("123456789", Kind::crc32), "cbf43926");
  EXPECT_EQ(checksum_of("123456789", Kind::crc32c), "e3069283");
  EXPECT_EQ(checksum_of("123456789", Kind::crc64nvme), "ae8b14860a799888");
  EXPECT_EQ(checksum_of("", Kind::crc64nvme), "0000000000000000");
  EXPECT_EQ(checksum_of(std::string(32, '\0'), Kind::crc32c), "8a9136aa");  // RFC 3720
}

TEST(Checksum, DoesNotDependOnHowTheBytesAreDivided) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * i);
  for (const Kind kind : {Kind::md5, Kind::sha256, Kind::sha1, Kind::crc32, Kind::crc32c, Kind::crc64nvme}) {
    Hasher hasher(kind);
    for (size_t at = 0, size = 1; at < bytes.size(); at += size, ++size) {
      hasher.update(std::as_bytes(std::span(bytes)).subspan(at, std::min(size, bytes.size() - at)));
    }
    EXPECT_EQ(hasher.hex(), checksum_of(bytes, kind)) << checksum_name(kind);
  }
}

TEST(Checksum, AuthenticatesAsRfc4231) {
  EXPECT_EQ(hex_text(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_text(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Checksum, ReadsBase64AsRfc4648) {
  EXPECT_EQ(base64_decoded("Zm9vYmFy"), "foobar");
  EXPECT_EQ(base64_decoded("Zm9vYg=="), "foob");
  EXPECT_EQ(base64_decoded("Zm9vYmE="), "fooba");
  for (const char* text : {"Zm9", "Zm9v!g==", "", "===="}) EXPECT_EQ(base64_decoded(text), "") << text;
}

}  // namespace
}  // namespace levin::checksum_test
