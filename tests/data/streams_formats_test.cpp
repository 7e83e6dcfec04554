// Tar archives, LitData's chunks and data sets without an index, well-formed and damaged; streams_test.cpp compares
// them with what Python reads.
#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/storage/open_store.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/streams/stream_index.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::streams_formats_test {
namespace {

using nlohmann::json;
using test::error_of;
using test::holds;
using test::TemporaryFolder;

std::string u32(uint64_t value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

struct TarOptions {
  char type = '0';
  std::string size = "";  // octal; "": the content's
  bool is_summed = true;
};

std::string member(const std::string& name, const std::string& content, const TarOptions& options = {}) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(124, options.size.empty() ? formatted("%011lo", content.size()) : options.size);
  header[156] = options.type;
  put(257, std::string("ustar\00000", 8));
  put(148, std::string(8, ' '));
  int sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, formatted("%06o", options.is_summed ? sum : sum + 1) + std::string("\0 ", 2));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

const std::string kEnd(1024, '\0');

std::string tar_error(const std::string& bytes, const StreamOptions& options = {}) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.tar", bytes);
  const StreamIndex index = index_of_files("root", {{.key = "a.tar"}}, options);
  std::string error = error_of<DataError>([&] {
    const auto shard = open_shard(index, 0, path);
    for (int64_t i = 0; i < shard->size(); ++i) (void)shard->get(i);
  });
  EXPECT_TRUE(error.empty() || holds(error, {path + ": "}));
  return error;
}

TEST(TarShards, DamagedHeaders) {
  const std::string good = member("a.txt", "text") + member("b.txt", "more") + kEnd;
  EXPECT_EQ(tar_error(good), "");
  EXPECT_EQ(tar_error(kEnd), "");
  const std::string ending =
      ": the file ends too early: expected 512 bytes of a header, or of zeros, which end an archive";
  EXPECT_TRUE(holds(tar_error(""), {"byte 0" + ending}));
  EXPECT_TRUE(holds(tar_error(good.substr(0, 700)), {"byte 1024" + ending + ", and the file has 700 bytes"}));
  EXPECT_TRUE(holds(tar_error(good.substr(0, 514)),
                    {"byte 512: the file ends too early: expected 4 bytes of a file in the archive"}));
  EXPECT_TRUE(
      holds(tar_error(good.substr(0, 2048)), {"byte 2048" + ending}));  // without the end, samples may be missing
  for (size_t size = 0; size < 2048; size += 100) EXPECT_NE(tar_error(good.substr(0, size)), "") << size;
  EXPECT_TRUE(holds(tar_error(member("a.txt", "x", {.is_summed = false}) + kEnd),
                    {"byte 148: expected the checksum of a tar header, "}));
  EXPECT_TRUE(holds(tar_error(member("a.txt", "x", {.size = "77777777777"}) + kEnd),
                    {"byte 512: the file ends too early: expected 8589934591 bytes of a file"}));
  EXPECT_TRUE(holds(tar_error(member("a.txt", "x", {.size = "0000000009"}) + kEnd),
                    {"byte 124: expected the size in the header of a tar archive, found \"0000000009\""}));
  EXPECT_TRUE(holds(tar_error(member("a.txt", "x", {.size = std::string(12, '\xff')}) + kEnd),
                    {"byte 124: expected the size"}));
  EXPECT_TRUE(holds(tar_error(std::string(512, 'x')),
                    {"byte 148: expected the checksum in the header of a tar archive, found \"xxxxxxxx\""}));
  EXPECT_TRUE(holds(tar_error(member("a.txt", "", {.type = 'S'}) + kEnd), {"a sparse file cannot be read"}));
  EXPECT_EQ(tar_error(member("a.txt", "", {.type = '2'}) + member("dir/", "", {.type = '5'}) + kEnd), "");
}

TEST(TarShards, DamagedExtendedHeaders) {
  const auto with = [](const std::string& records) {
    return member("pax", records, {.type = 'x'}) + member("a.txt", "x") + kEnd;
  };
  EXPECT_EQ(tar_error(with("14 path=b.txt\n")), "");
  for (const char* record :
       {"99 path=b.txt\n", "14path=b.txt\n", "x", "14 path=b.txtx", "0 a=b\n", "2 \n", "18446744073709551616 a=b\n"}) {
    EXPECT_TRUE(holds(tar_error(with(record)),
                      {"byte 512: expected a record \"LENGTH KEY=VALUE\" of an extended header, found"}))
        << record;
  }
  EXPECT_TRUE(holds(tar_error(with("12 size=99x\n")),
                    {"byte 512: expected the size in the header of a tar archive, found \"99x\""}));
  EXPECT_TRUE(holds(tar_error(with("27 size=999999999999999999\n")),
                    {"expected 999999999999999999 bytes of a file in the archive"}));
  EXPECT_TRUE(holds(tar_error(with("22 GNU.sparse.major=1\n")), {"a sparse file cannot be read"}));
  EXPECT_TRUE(holds(tar_error(member("l", std::string(5000, 'n'), {.type = 'L'}) + member("a", "x") + kEnd),
                    {"a name of 5000 bytes is longer than the 4096 allowed"}));
  EXPECT_TRUE(holds(tar_error(member("l", "long.txt", {.type = 'L'}) + kEnd),
                    {"byte 1024: expected a header after the extended header, found zeros"}));
  EXPECT_TRUE(holds(tar_error(member("x", std::string(2 << 20, ' '), {.type = 'x'}) + kEnd),
                    {"an extended header of 2097152 bytes, more than allowed"}));
}

TEST(TarShards, Values) {
  EXPECT_TRUE(
      holds(tar_error(member("a.cls", "cat") + kEnd), {"sample 0, field cls: expected an integer, found \"cat\""}));
  EXPECT_TRUE(holds(tar_error(member("a.txt", "\xff") + kEnd), {"field txt, byte 512: expected UTF-8"}));
  EXPECT_TRUE(
      holds(tar_error(member("a.npy", "\x93NUMPYno") + kEnd), {"field npy: byte 8: the file ends in its header"}));
  EXPECT_TRUE(holds(tar_error(member("a.jpg", "no image") + kEnd),
                    {"sample 0, field jpg: expected a JPEG, PNG or WebP image"}));
  EXPECT_TRUE(holds(tar_error(member("a.json", "{") + kEnd), {"field json, byte 513: expected JSON"}));
  EXPECT_TRUE(holds(tar_error(member("a.txt", "x") + member("a.TXT", "y") + kEnd),
                    {"byte 1024: the sample \"a\" has two files \"txt\""}));
  for (const char* ending : {"pkl", "pth", "pyd", "pickle", "pt", "b.pth"}) {
    const std::string bytes = member("a.txt", "x") + member(std::string("a.") + ending, "y") + kEnd;
    EXPECT_TRUE(holds(tar_error(bytes),
                      {"field " + std::string(ending) + ": the file holds pickled Python objects, which run code"}))
        << ending;
    EXPECT_EQ(tar_error(bytes, {.fields = {"txt"}}), "");
  }
  EXPECT_TRUE(holds(tar_error(member("a.txt", "x") + kEnd, {.fields = {"text"}}), {"sample 0: no field \"text\"."}));
}

// Pixels that are stored as an array are cut as those of a JPEG.
TEST(TarShards, PixelsOfAnArrayAreCut) {
  const TemporaryFolder folder;
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4, 6), }";
  header += std::string(118 - header.size() - 1, ' ') + "\n";
  std::string pixels;
  for (int k = 0; k < 72; ++k) pixels += static_cast<char>(k);
  const std::string npy = std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + header + pixels;
  const std::string path = folder.write("a.tar", member("a.npy", npy) + member("a.cls", "1") + kEnd);
  const StreamOptions options{.image = {.crop = ImageCrop::center, .size = 4}};
  const Batch sample = open_shard(index_of_files("root", {{.key = "a.tar"}}, options), 0, path)->get(0);
  ASSERT_EQ(sample[0].sizes(), (at::IntArrayRef{3, 4, 4}));
  EXPECT_EQ(sample[0][1][2][0].item<int64_t>(), 24 + 2 * 6 + 1);
}

TEST(TarShards, FieldsInsideOfJsonAreChosen) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("a.tar", member("a.json", "{\"x\": {\"y\": 1, \"z\": 2}, \"w\": 3}") + member("a.txt", "t") + kEnd);
  const auto names = [&](const std::vector<std::string>& fields) {
    return open_shard(index_of_files("root", {{.key = "a.tar"}}, {.fields = fields}), 0, path)->get(0).names();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({}), (Names{"json.x.y", "json.x.z", "json.w", "txt"}));
  EXPECT_EQ(names({"json.x"}), (Names{"json.x.y", "json.x.z"}));
  EXPECT_EQ(names({"json.x.z", "txt"}), (Names{"json.x.z", "txt"}));
  EXPECT_EQ(names({"json"}), (Names{"json.x.y", "json.x.z", "json.w"}));
}

std::string chunk_of(const std::vector<std::string>& items) {
  std::string header = u32(items.size()), content;
  const uint64_t start = 4 * (items.size() + 2);
  for (const std::string& item : items) {
    header += u32(start + content.size());
    content += item;
  }
  return header + u32(start + content.size()) + content;
}

json lit_index(const std::vector<std::string>& formats, int64_t items) {
  json children = json::array();
  for (size_t k = 0; k < formats.size(); ++k)
    children.push_back({{"type", nullptr}, {"context", nullptr}, {"children_spec", json::array()}});
  const json spec = json::array({1, {{"type", "builtins.tuple"}, {"context", "null"}, {"children_spec", children}}});
  return {{"chunks",
           json::array({{{"chunk_bytes", 0}, {"chunk_size", items}, {"dim", nullptr}, {"filename", "chunk-0-0.bin"}}})},
          {"config",
           {{"compression", nullptr},
            {"data_format", formats},
            {"data_spec", spec.dump()},
            {"encryption", nullptr},
            {"item_loader", "PyTreeLoader"}}}};
}

std::string index_error(const json& index, const StreamOptions& options = {}) {
  return error_of<DataError>([&] { (void)parse_stream_index("index.json", index.dump(), options); });
}

std::string lit_error(const json& json_index, const std::string& bytes, const StreamOptions& options = {}) {
  const StreamIndex index = parse_stream_index("index.json", json_index.dump(), options);
  const TemporaryFolder folder;
  const std::string packed = folder.write("packed", bytes), path = folder / "chunk";
  return error_of<DataError>([&] {
    decompress_shard(index.shards[0], packed, path, 1 << 20);
    const auto shard = open_shard(index, 0, path);
    for (int64_t i = 0; i < shard->size(); ++i) (void)shard->get(i);
  });
}

std::string leaf_error(const std::string& format, const std::string& value) {
  return lit_error(lit_index({format}, 1), chunk_of({u32(value.size()) + value}));
}

TEST(LitDataChunks, Items) {
  const json index = lit_index({"str", "int"}, 1);
  const std::string good = u32(1) + u32(8) + "a" + std::string(8, '\x01');
  EXPECT_EQ(lit_error(index, chunk_of({good})), "");
  EXPECT_EQ(lit_error(index, chunk_of({good}) + "a footer, which is ignored"), "");
  EXPECT_TRUE(holds(lit_error(index, chunk_of({good, good})),
                    {"byte 0: expected the number of items in the index, 1, found 2"}));
  EXPECT_TRUE(
      holds(lit_error(index, "abc"), {"byte 0: the file ends too early: expected 4 bytes of the number of items"}));
  EXPECT_TRUE(holds(lit_error(index, u32(1) + u32(20) + u32(12) + good),
                    {"byte 4: expected the offsets of item 0, from 12 to", "found 20 and 12"}));
  EXPECT_TRUE(
      holds(lit_error(index, chunk_of({"abc"})), {"expected 8 bytes of the sizes of the fields, and 3 are left"}));
  EXPECT_TRUE(holds(lit_error(index, chunk_of({u32(100) + u32(8) + "a"})), {"expected 100 bytes of 0, and 1 is left"}));
  EXPECT_TRUE(holds(lit_error(index, chunk_of({good + "x"})), {"expected the end of the sample, found 1 more byte"}));
  EXPECT_TRUE(holds(lit_error(index, chunk_of({""}) + std::string("LDARW01\0", 8)),
                    {"the chunk holds its items as a table of Arrow, which Levin does not read"}));
}

TEST(LitDataChunks, Values) {
  EXPECT_TRUE(holds(leaf_error("int", "1234"),
                    {"field 0, byte 16: expected 8 bytes for an array of shape () and type Long, found 4 bytes"}));
  EXPECT_TRUE(holds(leaf_error("bool", ""), {"expected 1 byte for an array of shape () and type Bool, found 0 bytes"}));
  EXPECT_TRUE(holds(leaf_error("no_header_tensor:16", "12345"), {"expected values of 4 bytes each, found 5 bytes"}));
  EXPECT_TRUE(holds(leaf_error("numpy", u32(14) + u32(0)), {"expected the number of a type, found 14"}));
  EXPECT_TRUE(
      holds(leaf_error("numpy", u32(9) + u32(UINT32_MAX)), {"expected at most 64 dimensions, found 4294967295"}));
  EXPECT_TRUE(holds(leaf_error("numpy", u32(9) + u32(2) + u32(UINT32_MAX) + u32(UINT32_MAX)),
                    {"of shape (4294967295, 4294967295)"}));
  EXPECT_TRUE(
      holds(leaf_error("tensor", std::string("\0\0\0\x15\0\0\0\0", 8)), {"expected the number of a type, found 21"}));
  EXPECT_TRUE(holds(leaf_error("tensor", std::string("\0\0\0\0\0\0\0\1\0\0\0\2abcd", 16)),
                    {"expected 8 bytes for an array of shape (2) and type Float, found 4 bytes"}));
  EXPECT_TRUE(holds(leaf_error("jpeg", "no image"), {"expected a JPEG, PNG or WebP image"}));
  EXPECT_TRUE(holds(leaf_error("jpeg_array", u32(1)), {"expected 4 bytes of the images' sizes, and 0 are left"}));
}

TEST(LitDataChunks, Indexes) {
  EXPECT_EQ(index_error(lit_index({"int"}, 1)), "");
  EXPECT_TRUE(holds(index_error(lit_index({"pickle"}, 1)),
                    {"config.data_format[0]: the field \"0\" is written by the serializer pickle, which Levin does not "
                     "read: pickled Python objects run code"}));
  EXPECT_TRUE(holds(index_error(lit_index({"tifffile"}, 1)),
                    {"the serializer tifffile, which Levin does not read. Write tensors"}));
  EXPECT_EQ(index_error(lit_index({"pickle", "int"}, 1), {.fields = {"1"}}), "");
  EXPECT_TRUE(holds(index_error(lit_index({"no_header_tensor:99"}, 1)),
                    {"expected the number of a type of LitData after the colon, found \"no_header_tensor:99\""}));
  json index = lit_index({"int"}, 1);
  index["config"]["encryption"] = "fernet";
  EXPECT_TRUE(holds(index_error(index), {"config.encryption: the chunks are encrypted"}));
  index = lit_index({"int"}, 1);
  index["config"]["data_format"] = {"int", "int"};
  EXPECT_TRUE(holds(index_error(index), {"expected a serializer for each of the 1 fields of data_spec"}));
  index = lit_index({"int"}, 1);
  index["config"]["data_spec"] = "[1, {\"type\": \"a.Class\", \"context\": \"\", \"children_spec\": []}]";
  EXPECT_TRUE(
      holds(index_error(index), {"index.json: config.data_spec: [1].type: expected a dict, a list or a tuple as "
                                 "the samples' structure, found \"a.Class\""}));
  index["config"]["data_spec"] = "[1, ";
  EXPECT_TRUE(holds(index_error(index), {"index.json: config.data_spec: expected JSON"}));
  index = lit_index({"no_header_tensor:16"}, 1);
  index["config"]["item_loader"] = "TokensLoader";
  index["chunks"][0]["dim"] = 7;
  EXPECT_TRUE(holds(index_error(index), {"config.item_loader: the chunks hold tokens, and the index does not say how "
                                         "many form a sample. Set the option block_size."}));
  EXPECT_EQ(lit_error(index, chunk_of({std::string(28, 'a')}), {.block_size = 3}), "");
  EXPECT_TRUE(holds(lit_error(index, chunk_of({std::string(27, 'a')}), {.block_size = 3}),
                    {"byte 12: expected 28 bytes of tokens, as the index says, found 27"}));
  EXPECT_EQ(*parse_stream_index("i", index.dump(), {.block_size = 3}).shards[0].samples, 2);
  index["config"]["compression"] = "lz4";
  EXPECT_TRUE(holds(index_error(index, {.block_size = 3}), {"config.compression: expected zstd, found \"lz4\""}));
}

std::string zstandard(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

TEST(LitDataChunks, FramesInsideAChunk) {
  json index = lit_index({"bytes"}, 2);
  index["config"]["compression"] = "zstd";
  index["config"]["compression_level"] = "batch";
  const std::string content = u32(1) + "a" + u32(2) + "bc", frame = zstandard(content);
  const auto batch = [&](const std::string& magic, uint64_t version, uint64_t items, uint64_t first, uint64_t position,
                         uint64_t size, const std::string& packed) {
    return magic + u32(version) + u32(items) + u32(256) + u32(1) + u32(0) + u32(5) + u32(11) + u32(first) + u32(2) +
           u32(position) + u32(0) + u32(packed.size()) + u32(size) + packed;
  };
  const std::string magic("LDFZ01\0\0", 8);
  EXPECT_EQ(lit_error(index, batch(magic, 1, 2, 0, 60, 11, frame)), "");
  EXPECT_TRUE(holds(lit_error(index, batch(std::string("LDFZ02\0\0", 8), 1, 2, 0, 60, 11, frame)),
                    {"/packed: byte 0: expected LDFZ01, found \"LDFZ02"}));
  EXPECT_TRUE(holds(lit_error(index, batch(magic, 2, 2, 0, 60, 11, frame)),
                    {"byte 8: expected version 1 without flags, found 2"}));
  EXPECT_TRUE(holds(lit_error(index, batch(magic, 1, UINT32_MAX, 0, 60, 11, frame)),
                    {"byte 0: the file ends too early: expected 17179869232 bytes of the table of frames"}));
  EXPECT_TRUE(holds(lit_error(index, batch(magic, 1, 2, 1, 60, 11, frame)),
                    {"byte 36: expected a frame of the items from 0 on"}));
  EXPECT_TRUE(holds(lit_error(index, batch(magic, 1, 2, 0, 61, 11, frame)),
                    {"byte 61: the file ends too early", "bytes of a frame"}));
  EXPECT_TRUE(holds(lit_error(index, batch(magic, 1, 2, 0, 60, 10, frame)),
                    {"byte 36: expected a frame of the items from 0 on"}));
  EXPECT_TRUE(holds(lit_error(index, batch(magic, 1, 2, 0, 60, 11, zstandard("short"))),
                    {"byte 60: expected 11 bytes in a frame, found 5"}));
  EXPECT_TRUE(holds(lit_error(index, batch(magic, 1, 2, 0, 60, 11, std::string(frame.size(), 'x'))),
                    {"byte 60: damaged Zstandard data: Unknown frame descriptor"}));
  index["config"]["compression_level"] = "sample";
  const std::string one = zstandard(u32(1) + "a"), two = zstandard(u32(2) + "bc");
  EXPECT_EQ(lit_error(index, chunk_of({one, two})), "");
  EXPECT_TRUE(holds(lit_error(index, chunk_of({one, "raw"})),
                    {"expected a frame of Zstandard that tells the size of its content"}));
  EXPECT_TRUE(holds(lit_error(index, u32(2) + u32(16) + u32(12)),
                    {"the file ends too early: expected 16 bytes of the items' offsets"}));
  const std::string huge("\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x00\x00\x00\x00\x10", 13);  // claims 2^60 bytes
  EXPECT_TRUE(holds(lit_error(index, chunk_of({one, huge})), {"the decompressed items have more bytes than allowed"}));
}

TEST(StreamFiles, BracesInPatterns) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_braces("a.tar"), Names{"a.tar"});
  EXPECT_EQ(expand_braces("a-{008..011}.tar"), (Names{"a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"}));
  EXPECT_EQ(expand_braces("{9..11}"), (Names{"9", "10", "11"}));
  EXPECT_EQ(expand_braces("{a,b{1..2}}/{x,}"), (Names{"a/x", "a/", "b1/x", "b1/", "b2/x", "b2/"}));
  const auto error = [](const std::string& pattern) {
    return error_of<DataError>([&] { (void)expand_braces(pattern); });
  };
  EXPECT_EQ(error("a{1..2"), "pattern \"a{1..2\": a { is not closed.");
  EXPECT_EQ(error("{a}"), "pattern \"{a}\": expected {FIRST..LAST} or {a,b}, found {a}.");
  EXPECT_TRUE(holds(error("{2..1}"), {"{2..1} is empty or stands for more than a million names"}));
  EXPECT_TRUE(holds(error("{0..999}{0..999}{0..9}"), {"it stands for more than a million names"}));
  EXPECT_TRUE(holds(error("{0..99999999999999999999}"), {"expected {FIRST..LAST}"}));
  EXPECT_TRUE(holds(error(std::string(5000, '{')), {"it is longer than 4096 characters"}));
}

TEST(StreamFiles, FormatsAreToldByEndings) {
  const auto keys = [](const std::vector<std::string>& names, const StreamOptions& options = {}) {
    std::vector<StoredObject> files;
    for (const std::string& name : names) files.push_back({.key = name, .size = 3});
    std::vector<std::string> found;
    for (const ShardInfo& shard : index_of_files("root", files, options).shards)
      found.push_back(shard.key + ":" + shard.compression);
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(keys({"README.md", "a.tar", "b.tar.gz", "c.tgz", "d/e.tar.zst", ".hidden.tar", "info.json", "sizes.json"}),
            (Names{"a.tar:", "b.tar.gz:gz", "c.tgz:gz", "d/e.tar.zst:zst"}));
  EXPECT_EQ(keys({"a.jsonl", "b.ndjson.zstd", "info.json"}), (Names{"a.jsonl:", "b.ndjson.zstd:zst"}));
  EXPECT_EQ(keys({"a.json", "b.json.gz"}), (Names{"a.json:", "b.json.gz:gz"}));
  EXPECT_EQ(keys({"a.jsonl", "a.tar"}, {.format = StreamFormat::jsonl}), Names{"a.jsonl:"});
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      keys({"a.jsonl", "b.tar"});
                    }),
                    {"root: there are tar archives and files of JSON lines, such as a.jsonl and b.tar. Set format to "
                     "webdataset or jsonl"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { keys({"a.mds"}); }),
                    {"root: no shards: expected index.json, or files that end in .tar, .tgz, .jsonl"}));
}

TEST(StreamFiles, IndexesAndListings) {
  const TemporaryFolder folder;
  folder.write("b-0.tar", member("a.txt", "x") + member("b.txt", "y") + kEnd);
  folder.write("b-1.tar", member("c.txt", "z") + kEnd);
  const auto store = open_store(folder.path());
  EXPECT_FALSE(read_stream_index(*store).shards.at(0).samples.has_value());
  folder.write("sizes.json", "{\"b-0.tar\": 2, \"b-1.tar\": 3}");
  const StreamIndex index = read_stream_index(*store, {.pattern = "b-{0..1}.tar"});
  EXPECT_EQ(*index.shards.at(0).samples, 2);
  EXPECT_EQ(open_shard(index, 0, folder / "b-0.tar")->size(), 2);
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)open_shard(index, 1, folder / "b-1.tar"); }),
                    {"/b-1.tar: the shard has 1 sample, and the index says 3. Copy the shard and the index again."}));
  folder.write("sizes.json", "[]");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read_stream_index(*store); }),
                    {"sizes.json: expected an object of the files' numbers of samples, found a list of 0"}));
  folder.write("index.json",
               "{\"__kind__\": \"wids-shard-index-v1\", \"shardlist\": [{\"url\": \"b-1.tar\", \"nsamples\": 1, "
               "\"filesize\": 2048}]}");
  EXPECT_EQ(read_stream_index(*store).shards.at(0).key, "b-1.tar");
  EXPECT_EQ(read_stream_index(*store).shards.at(0).bytes, 2048U);
  const TemporaryFolder empty;
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)read_stream_index(*open_store(empty.path())); }),
                    {empty.path() + ": no shards"}));
  EXPECT_TRUE(holds(
      error_of<DataError>([&] { (void)read_stream_index(*open_store(empty.path()), {.format = StreamFormat::mds}); }),
      {"index.json: expected the data set's index, which the format mds needs, and there is no such file"}));
}

}  // namespace
}  // namespace levin::streams_formats_test
