// Damaged and hostile shards and indexes: each is an error that names the file, the place and what was expected.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/streams/stream_index.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::streams_damage_test {
namespace {

using nlohmann::json;
using test::error_of;
using test::holds;
using test::TemporaryFolder;

constexpr uint64_t kMaxBytes = 1 << 20;

std::string u32(uint64_t value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

// A shard of items with offsets before them, as MDS and LitData have it.
std::string shard_of(const std::vector<std::string>& items) {
  std::string header = u32(items.size()), content;
  const uint64_t start = 4 * (items.size() + 2);
  for (const std::string& item : items) {
    header += u32(start + content.size());
    content += item;
  }
  return header + u32(start + content.size()) + content;
}

json mds_shard(const json& names, const json& encodings, const json& sizes, int64_t samples) {
  return {{"column_names", names},
          {"column_encodings", encodings},
          {"column_sizes", sizes},
          {"compression", nullptr},
          {"format", "mds"},
          {"hashes", json::array()},
          {"raw_data", {{"basename", "a.mds"}, {"bytes", 0}, {"hashes", json::object()}}},
          {"samples", samples},
          {"version", 2},
          {"zip_data", nullptr}};
}

json mds_index(const std::string& encoding, const json& size, int64_t samples) {
  return {
      {"shards", json::array({mds_shard(json::array({"x"}), json::array({encoding}), json::array({size}), samples)})},
      {"version", 2}};
}

std::string index_error(const json& index, const StreamOptions& options = {}) {
  return error_of<DataError>([&] { (void)parse_stream_index("index.json", index.dump(), options); });
}

// Reads every sample of a shard.
std::string shard_error(const StreamIndex& index, const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("shard", bytes);
  std::string error = error_of<DataError>([&] {
    const auto shard = open_shard(index, 0, path);
    for (int64_t i = 0; i < shard->size(); ++i) (void)shard->get(i);
  });
  EXPECT_TRUE(error.empty() || holds(error, {path}));
  return error;
}

std::string shard_error(const json& index, const std::string& bytes, const StreamOptions& options = {}) {
  return shard_error(parse_stream_index("index.json", index.dump(), options), bytes);
}

// One sample of one column without a fixed size.
std::string value_error(const std::string& encoding, const std::string& value) {
  return shard_error(mds_index(encoding, nullptr, 1), shard_of({u32(value.size()) + value}));
}

TEST(StreamsDamage, MdsShardsThatEndTooEarly) {
  const json index = mds_index("str", nullptr, 2);
  const std::string whole = shard_of({u32(2) + "ab", u32(1) + "c"});
  EXPECT_EQ(shard_error(index, whole), "");
  EXPECT_TRUE(holds(shard_error(index, "ab"),
                    {"byte 0: the file ends too early: expected 4 bytes of the number of samples, and "
                     "the file has 2 bytes. Copy the shard again, or write it again."}));
  EXPECT_TRUE(holds(shard_error(index, whole.substr(0, 9)),
                    {"byte 4: the file ends too early: expected 12 bytes of the samples' offsets"}));
  EXPECT_TRUE(holds(shard_error(index, whole.substr(0, whole.size() - 1)),
                    {"byte 8: expected the offsets of sample 1, from 16 to 26, found 22 and 27"}));
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(shard_error(index, whole.substr(0, size)), "") << size;
}

TEST(StreamsDamage, MdsShardsWithWrongOffsetsAndSizes) {
  const json index = mds_index("str", nullptr, 1);
  EXPECT_TRUE(holds(shard_error(index, u32(2) + u32(12) + u32(12) + u32(12)),
                    {"the shard has 2 samples, and the index says 1. Copy the shard and the index again."}));
  EXPECT_TRUE(holds(shard_error(index, u32(1) + u32(16) + u32(12) + "abcdefgh"),
                    {"byte 4: expected the offsets of sample 0, from 12 to 20, found 16 and 12"}));
  EXPECT_TRUE(holds(shard_error(index, u32(1) + u32(4) + u32(12) + "abcdefgh"), {"found 4 and 12"}));
  EXPECT_TRUE(holds(shard_error(mds_index("str", nullptr, UINT32_MAX), u32(UINT32_MAX) + "abcd"),
                    {"expected 17179869184 bytes of the samples' offsets, and the file has 8 bytes"}));
  EXPECT_TRUE(holds(shard_error(index, shard_of({u32(9) + "abc"})),
                    {"sample 0, byte 16: the sample ends too early: expected 9 bytes of x, and 3 are left"}));
  EXPECT_TRUE(holds(shard_error(index, shard_of({u32(1) + "abc"})),
                    {"sample 0, byte 17: expected the end of the sample, found 2 more bytes"}));
  EXPECT_TRUE(holds(shard_error(index, shard_of({"ab"})), {"expected 4 bytes of a column's size, and 2 are left"}));
  const TemporaryFolder folder;
  const StreamIndex parsed = parse_stream_index("index.json", index.dump());
  const auto shard = open_shard(parsed, 0, folder.write("a", shard_of({u32(0)})));
  EXPECT_TRUE(
      holds(error_of<DataError>([&] { (void)shard->get(1); }), {"/a: there is no sample 1: the shard has 1 sample."}));
  EXPECT_NE(error_of<DataError>([&] { (void)shard->get(-1); }), "");
}

TEST(StreamsDamage, MdsValues) {
  EXPECT_TRUE(holds(value_error("str", "ab\xff"), {"sample 0, field x, byte 18: expected UTF-8, found the byte 0xff"}));
  EXPECT_TRUE(
      holds(value_error("str_int", "12a"), {"field x: expected an integer, found \"12a\". Store it as a string."}));
  EXPECT_TRUE(holds(value_error("str_int", "9223372036854775808"),
                    {"the integer 9223372036854775808 does not fit into 64 bits"}));
  for (const char* text : {"", "1.5e", "0x1p3", "nan(1)", "--1", "1 2"}) {
    EXPECT_TRUE(holds(value_error("str_float", text), {"expected a number, found \"" + std::string(text)})) << text;
  }
  EXPECT_TRUE(holds(value_error("ndarray", "\xc8"), {"expected the type of an array, found 200"}));
  EXPECT_TRUE(holds(value_error("ndarray", std::string("\x22\x04\x03", 3)),
                    {"expected 12 bytes for an array of shape (3) and type Float, found 0 bytes"}));
  const std::string huge("\x08\x0b\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10", 18);
  EXPECT_TRUE(
      holds(value_error("ndarray", huge),
            {"expected more than 2^62 values for an array of shape (1152921504606846976, 1152921504606846976)"}));
  EXPECT_TRUE(
      holds(value_error("ndarray", std::string("\x08\x07\xff\xff\xff\xff\xff\xff\xff\xff", 10)), {"of shape (-1)"}));
  EXPECT_TRUE(holds(value_error("ndarray:float32", std::string("\x04\x02", 2) + "abc"), {"expected 8 bytes"}));
  EXPECT_TRUE(holds(value_error("jpeg", "\xff\xd8nothing"), {"field x: the image is damaged"}));
  EXPECT_TRUE(holds(value_error("png", "GIF89a"),
                    {"field x: expected a JPEG, PNG or WebP image, saw a file that begins with \"GIF89a\""}));
  EXPECT_TRUE(holds(value_error("pil", u32(2) + u32(1) + u32(1) + "Pab"),
                    {"an image of PIL's mode \"P\" cannot be read", "Store image.convert(\"RGB\")."}));
  EXPECT_TRUE(holds(value_error("pil", u32(UINT32_MAX) + u32(UINT32_MAX) + u32(1) + "Lab"),
                    {"the image has 4294967295 x 4294967295 pixels"}));
  EXPECT_TRUE(
      holds(value_error("pil", u32(2) + u32(1) + u32(3) + "RGBab"), {"expected 6 bytes of pixels, and 2 are left"}));
  EXPECT_TRUE(holds(value_error("jpegarray", u32(UINT32_MAX)),
                    {"expected 17179869180 bytes of the images' sizes, and 0 are left"}));
  EXPECT_TRUE(holds(value_error("list[png]", u32(0) + u32(1) + u32(99) + "ab"),
                    {"expected 99 bytes of an image, and 2 are left"}));
  EXPECT_TRUE(holds(shard_error(mds_index("int", 8, 1), shard_of({"abc"})), {"expected 8 bytes of x, and 3 are left"}));
}

TEST(StreamsDamage, Json) {
  EXPECT_TRUE(holds(value_error("json", "{\"a\": 1,}"),
                    {"field x, byte 24: expected JSON: ", "unexpected '}'; expected string literal"}));
  EXPECT_TRUE(holds(value_error("json", ""), {"expected JSON: ", "unexpected end of input"}));
  EXPECT_TRUE(holds(value_error("json", "\"\xff\""), {"ill-formed UTF-8 byte"}));
  EXPECT_TRUE(holds(value_error("json", "[1] 2"), {"expected end of input"}));
  EXPECT_TRUE(holds(value_error("json", std::string(200'000, '[')), {"values nest deeper than 100"}));
  EXPECT_TRUE(
      holds(value_error("json", "9223372036854775808"), {"the integer 9223372036854775808 does not fit into 64 bits"}));
  EXPECT_TRUE(holds(value_error("json", std::string(400, '9')), {"expected JSON: "}));
  EXPECT_TRUE(holds(value_error("json", "{\"a.b\": 1, \"a\": {\"b\": 2}}"),
                    {"sample 0: two fields are called \"x.a.b\". Rename one of them."}));
  EXPECT_TRUE(holds(value_error("json", "[NaN, Nan]"), {"expected JSON"}));
  std::string many = "{";
  for (int k = 0; k < 1001; ++k) many += "\"k" + std::to_string(k) + "\": 1, ";
  EXPECT_TRUE(
      holds(value_error("json", many + "\"z\": 0}"), {"more than 1000 fields. Choose some with the option `fields`"}));
  for (int k = 1001; k < 10'002; ++k) many += "\"k" + std::to_string(k) + "\": 1, ";
  EXPECT_TRUE(holds(value_error("json", many + "\"z\": 0}"), {"an object has more than 10000 members"}));

  const StreamIndex lines = index_of_files("root", {{.key = "a.jsonl"}});
  EXPECT_EQ(shard_error(lines, "\n{\"a\": 1}\n\n"), "");
  EXPECT_TRUE(
      holds(shard_error(lines, "{\"a\": 1}\n[1]\n"), {"sample 1, byte 9: expected a JSON object, found array"}));
  EXPECT_TRUE(holds(shard_error(lines, "{\"a\": 1}\n{\"a\""), {"sample 1, byte 13: expected JSON: "}));
  EXPECT_TRUE(holds(shard_error(lines, "{\"\": 1}"), {"sample 0: a field has an empty name"}));
}

TEST(StreamsDamage, MosaicIndexes) {
  const json good = mds_index("str", nullptr, 1);
  const auto with = [&](const std::string& path, const json& value) {
    json changed = good;
    changed[json::json_pointer(path)] = value;
    return index_error(changed);
  };
  EXPECT_EQ(index_error(good), "");
  EXPECT_TRUE(holds(
      error_of<DataError>([] { (void)parse_stream_index("s3://b/index.json", "{\"shards\": [", {}); }),
      {"s3://b/index.json: expected JSON: parse error at line 1, column 13", "Write the data set's index again."}));
  EXPECT_TRUE(holds(index_error({{"a", 1}}),
                    {"expected the index of MosaicML's streaming (shards), of LitData (chunks) or of WebDataset"}));
  EXPECT_TRUE(holds(index_error({{"version", 2}, {"shards", json::array()}}), {"the index has no shards"}));
  EXPECT_TRUE(holds(index_error({{"version", 2}, {"shards", 3}}), {"index.json: shards: expected a list, found 3"}));
  EXPECT_TRUE(holds(with("/version", 1), {"version: expected version 2, found 1"}));
  EXPECT_TRUE(
      holds(with("/shards/0/version", "2"), {"shards[0].version: expected an integer from 0 to", "found \"2\""}));
  EXPECT_TRUE(holds(with("/shards/0/format", "parquet"),
                    {"shards[0].format: expected mds, json, csv, tsv or xsv, found \"parquet\""}));
  EXPECT_TRUE(
      holds(with("/shards/0/samples", -1), {"shards[0].samples: expected an integer from 0 to 4294967295, found -1"}));
  EXPECT_TRUE(holds(with("/shards/0/samples", 1e30), {"found 1e+30"}));
  for (const char* name : {"../a.mds", "/etc/passwd", "", "a//b", "a/../../b"}) {
    EXPECT_TRUE(holds(with("/shards/0/raw_data/basename", name),
                      {"expected a file below the data set's folder, found \"" + std::string(name)}))
        << name;
  }
  EXPECT_TRUE(holds(with("/shards/0/column_sizes", json::array()),
                    {"as many column_encodings and column_sizes, found 1, 1 and 0"}));
  EXPECT_TRUE(holds(with("/shards/0/column_sizes/0", 7),
                    {"column_sizes[0]: expected null, for values of different sizes, found 7"}));
  EXPECT_TRUE(holds(index_error(mds_index("int", 7, 1)), {"expected 8, the bytes of int, found 7"}));
  EXPECT_TRUE(holds(with("/shards/0/column_encodings/0", "tensor"),
                    {"expected an encoding of MDS, such as int, str, ndarray:float32 or jpeg, found \"tensor\""}));
  EXPECT_TRUE(holds(with("/shards/0/column_encodings/0", "str:utf8"), {"expected an encoding of MDS"}));
  EXPECT_TRUE(holds(with("/shards/0/column_encodings/0", "ndarray:object"), {"expected an array's type"}));
  EXPECT_TRUE(holds(with("/shards/0/column_encodings/0", "ndarray:float32:65536,65536"), {"of less than 2^32 bytes"}));
  EXPECT_TRUE(holds(with("/shards/0/column_encodings/0", "ndarray:float32:0"), {"expected an array's sizes"}));
  EXPECT_TRUE(
      holds(with("/shards/0/column_names/0", ""), {"column_names[0]: expected a name that no other column has"}));
  EXPECT_TRUE(holds(with("/shards/0/zip_data", {{"basename", "a.br"}, {"bytes", 1}}),
                    {"compression: expected the compression of zip_data, found nothing"}));
  json other = good;
  other["shards"].push_back(mds_shard(json::array({"x"}), json::array({"int"}), json::array({8}), 1));
  EXPECT_TRUE(holds(index_error(other), {"shards[1]: expected the same format and columns as in the first shard"}));
  json packed = good;
  packed["shards"][0]["zip_data"] = {{"basename", "a.mds.br"}, {"bytes", 1}, {"hashes", json::object()}};
  packed["shards"][0]["compression"] = "br:11";
  EXPECT_TRUE(holds(index_error(packed), {"the shards are compressed with br, and Levin reads zstd and gz"}));
  EXPECT_TRUE(holds(index_error(good, {.format = StreamFormat::litdata}),
                    {"the index is of the format mds, and the option format is litdata"}));
  EXPECT_TRUE(holds(index_error(good, {.fields = {"y"}}), {"no field \"y\". There is x. Change the option `fields`."}));
}

TEST(StreamsDamage, PickledValuesAreRefusedUnlessTheyAreLeftOut) {
  const json index = {{"shards", json::array({mds_shard(json::array({"x", "label"}), json::array({"pkl", "int"}),
                                                        json::array({nullptr, 8}), 1)})},
                      {"version", 2}};
  EXPECT_TRUE(
      holds(index_error(index),
            {"column_encodings[0]: the column \"x\" holds pickled Python objects, which run code when they are read",
             "leave it out with the option `fields`."}));
  const StreamIndex chosen = parse_stream_index("index.json", index.dump(), {.fields = {"label"}});
  const TemporaryFolder folder;
  const auto shard =
      open_shard(chosen, 0, folder.write("a", shard_of({u32(3) + "pkl" + std::string("\x07\0\0\0\0\0\0\0", 8)})));
  EXPECT_EQ(shard->get(0).names(), std::vector<std::string>{"label"});
  EXPECT_EQ(shard->get(0)["label"].item<int64_t>(), 7);
}

std::string gzipped(const std::string& text) {
  std::string packed(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstandard(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

// Decompresses `bytes`; the error, or the content.
std::string unpacked(ShardInfo info, const std::string& bytes, uint64_t max_bytes = kMaxBytes) {
  const TemporaryFolder folder;
  const std::string from = folder.write("packed", bytes), to = folder / "shard";
  const std::string error = error_of<DataError>([&] { decompress_shard(info, from, to, max_bytes); });
  EXPECT_EQ(folder.names(),
            error.empty() ? (std::vector<std::string>{"packed", "shard"}) : std::vector<std::string>{"packed"});
  return error.empty() ? read_file(to) : error;
}

TEST(StreamsDamage, DecompressionIsExact) {
  std::string text;
  for (int k = 0; k < 300'000; ++k) text += std::to_string(k * 2654435761U % 1000);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{262144}, text.size()}) {
    const std::string part = text.substr(0, size);
    EXPECT_EQ(unpacked({.compression = "gz"}, gzipped(part)), part) << size;
    EXPECT_EQ(unpacked({.compression = "zst"}, zstandard(part)), part) << size;
    EXPECT_EQ(unpacked({.compression = ""}, part), part) << size;
  }
  EXPECT_EQ(unpacked({.compression = "gz"}, gzipped("ab") + gzipped("cd") + std::string(700, '\0')), "abcd");
  EXPECT_EQ(unpacked({.compression = "zst"}, zstandard("ab") + zstandard("cd")), "abcd");
}

TEST(StreamsDamage, CompressedShards) {
  std::string text;
  for (int k = 0; k < 5000; ++k) text += std::to_string(k * 2654435761U);
  const std::string gz = gzipped(text), zst = zstandard(text);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{10}, size_t{19}, gz.size() / 2, gz.size() - 1}) {
    EXPECT_TRUE(
        holds(unpacked({.compression = "gz"}, gz.substr(0, size)),
              {"/packed: byte " + std::to_string(size) + ": the file ends too early: expected more gzip data"}));
  }
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4}, zst.size() / 2, zst.size() - 1}) {
    EXPECT_TRUE(
        holds(unpacked({.compression = "zst"}, zst.substr(0, size)),
              {"/packed: byte " + std::to_string(size) + ": the file ends too early: expected more Zstandard data"}));
  }
  EXPECT_TRUE(
      holds(unpacked({.compression = "gz"}, "no gzip at all"), {"byte", "damaged gzip data: incorrect header check"}));
  EXPECT_TRUE(holds(unpacked({.compression = "gz"}, gz + "x"), {"expected more gzip data"}));
  EXPECT_TRUE(
      holds(unpacked({.compression = "zst"}, "no zstd at all"), {"damaged Zstandard data: Unknown frame descriptor"}));
  std::string broken = gz;
  broken[gz.size() - 6] ^= 1;
  EXPECT_TRUE(holds(unpacked({.compression = "gz"}, broken), {"damaged gzip data: incorrect data check"}));
}

TEST(StreamsDamage, BombsAreRefused) {
  const std::string zeros(8 << 20, '\0');
  for (const auto& [compression, bytes] : {std::pair{"gz", gzipped(zeros)}, std::pair{"zst", zstandard(zeros)}}) {
    EXPECT_TRUE(
        holds(unpacked({.compression = compression}, bytes),
              {"/packed: the decompressed shard is larger than the 1048576 bytes allowed. Raise max_shard_bytes"}));
    EXPECT_TRUE(holds(unpacked({.compression = compression, .decompressed_bytes = 100}, bytes),
                      {"the decompressed shard is larger than the 100 bytes that the index says"}));
    EXPECT_TRUE(holds(unpacked({.compression = compression, .decompressed_bytes = 100},
                               std::string(compression) == "gz" ? gzipped("ab") : zstandard("ab")),
                      {"the decompressed shard has 2 bytes, and the index says 100"}));
  }
  // A frame that claims a window of 2 GiB: libzstd would keep as much in memory.
  const std::string wide("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9);
  EXPECT_TRUE(holds(unpacked({.compression = "zst"}, wide), {"Frame requires too much memory for decoding"}));
}

TEST(StreamsDamage, ChecksumsAndSizes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "abc");
  const auto error = [&](const ShardInfo& info) { return error_of<DataError>([&] { check_shard_file(info, path); }); };
  const auto sum = [](Checksum::Kind kind, const std::string& hex, bool raw = false) {
    return ShardChecksum{{kind, hex}, raw};
  };
  // The digests of "abc" that Python's hashlib and xxhash return.
  const std::vector<std::pair<std::string, std::string>> digests = {
      {"md5", "900150983cd24fb0d6963f7d28e17f72"},
      {"sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"},
      {"sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"xxh32", "32d153ff"},
      {"xxh64", "44bc2cf5ad770999"},
      {"xxh3_64", "78af5f94892f3950"},
      {"xxh3_128", "06b05ab6733a618578af5f94892f3950"}};
  for (const auto& [name, hex] : digests)
    EXPECT_EQ(error({.bytes = 3, .checksums = {sum(*checksum_kind(name), hex)}}), "") << name;
  EXPECT_FALSE(checksum_kind("blake2b").has_value());
  EXPECT_TRUE(holds(error({.bytes = 4}),
                    {"/a: the file has 3 bytes, and the index says 4. Copy the shard and the index again."}));
  EXPECT_TRUE(holds(error({.checksums = {sum(Checksum::Kind::xxh64, "44bc2cf5ad770998")}}),
                    {"/a: the XXH64 of the file is 44bc2cf5ad770999, and the index says 44bc2cf5ad770998"}));
  EXPECT_EQ(
      unpacked({.compression = "gz", .checksums = {sum(Checksum::Kind::md5, digests[0].second, true)}}, gzipped("abc")),
      "abc");
  EXPECT_TRUE(
      holds(unpacked({.compression = "gz", .checksums = {sum(Checksum::Kind::md5, "00", true)}}, gzipped("abc")),
            {"the MD5 of the decompressed shard is 900150983cd24fb0d6963f7d28e17f72, and the index says 00"}));
}

}  // namespace
}  // namespace levin::streams_damage_test
