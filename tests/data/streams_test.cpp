// Shards as Python's streaming libraries write them: streams/make_fixtures.py made the files and recorded what the
// libraries read back.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/core/files/files.h"
#include "levin/core/storage/open_store.h"
#include "levin/data/streams/stream_index.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::streams_test {
namespace {

using nlohmann::json;
using test::TemporaryFolder;

std::string fixture(const std::string& name) {
  return test::source_dir() + "/tests/data/streams/" + name;
}

std::string bytes_of(const json& digits) {
  const auto text = digits.get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string type_name(at::ScalarType type) {
  static const std::map<at::ScalarType, std::string> names = {
      {at::kBool, "bool"},     {at::kChar, "int8"},    {at::kShort, "int16"},       {at::kInt, "int32"},
      {at::kLong, "int64"},    {at::kByte, "uint8"},   {at::kUInt16, "uint16"},     {at::kUInt32, "uint32"},
      {at::kUInt64, "uint64"}, {at::kHalf, "float16"}, {at::kBFloat16, "bfloat16"}, {at::kFloat, "float32"},
      {at::kDouble, "float64"}};
  return names.at(type);
}

void expect_tensor(const at::Tensor& found, const json& expected, const std::string& where) {
  EXPECT_EQ(type_name(found.scalar_type()), expected["dtype"].get<std::string>()) << where;
  EXPECT_EQ(found.sizes().vec(), expected["shape"].get<std::vector<int64_t>>()) << where;
  const at::Tensor whole = found.contiguous();
  EXPECT_EQ(std::string(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()), bytes_of(expected["hex"]))
      << where;
}

void expect_sample(const Batch& found, const json& fields, const std::string& where) {
  std::vector<std::string> names;
  for (const json& field : fields) names.push_back(field[0]);
  ASSERT_EQ(found.names(), names) << where;
  for (const json& field : fields) {
    const std::string name = field[0], place = where + ", " + name;
    const json& content = field[1];
    if (content.contains("text")) {
      ASSERT_EQ(found.kind(name), FieldKind::texts) << place;
      EXPECT_EQ(found.texts(name), std::vector<std::string>{content["text"].get<std::string>()}) << place;
    } else if (content.contains("list")) {
      ASSERT_EQ(found.kind(name), FieldKind::list) << place;
      ASSERT_EQ(found.list(name).size(), content["list"].size()) << place;
      for (size_t k = 0; k < content["list"].size(); ++k) expect_tensor(found.list(name)[k], content["list"][k], place);
    } else {
      ASSERT_EQ(found.kind(name), FieldKind::tensor) << place;
      expect_tensor(found[name], content, place);
    }
  }
}

// Opens a shard as a loader does.
std::unique_ptr<Shard> open(const StreamIndex& index, size_t shard, const ObjectStore& store,
                            const TemporaryFolder& folder) {
  const ShardInfo& info = index.shards.at(shard);
  const std::string packed = folder / "packed", path = folder / "shard";
  store.fetch(info.key, packed);
  check_shard_file(info, packed);
  if (info.compression.empty()) return open_shard(index, shard, packed);
  decompress_shard(info, packed, path, index.options.max_shard_bytes);
  return open_shard(index, shard, path);
}

void expect_python(const std::string& name, const StreamOptions& options, StreamFormat format) {
  const auto store = open_store(fixture(name));
  const StreamIndex index = read_stream_index(*store, options);
  EXPECT_EQ(index.format, format) << name;
  json expected = json::parse(read_file(fixture(name) + "/expected.json"));
  size_t row = 0;
  for (size_t k = 0; k < index.shards.size(); ++k) {
    const TemporaryFolder folder;
    const auto shard = open(index, k, *store, folder);
    EXPECT_EQ(shard->size(), index.shards[k].samples.value_or(shard->size())) << name;
    for (int64_t i = shard->size(); i-- > 0;) {  // in any order
      const auto at = row + static_cast<size_t>(i);
      ASSERT_LT(at, expected["samples"].size()) << name;
      const json& sample = expected["samples"][at];
      EXPECT_EQ(shard->sample_id(i), sample["id"].get<std::string>());
      expect_sample(shard->get(i), sample["fields"], name + ", " + sample["id"].get<std::string>());
    }
    row += static_cast<size_t>(shard->size());
  }
  EXPECT_EQ(row, expected["samples"].size()) << name;
}

TEST(Streams, MosaicShardsEqualWhatPythonReads) {
  for (const char* name : {"mds", "mds_zstd", "mds_gz", "mosaic_json", "mosaic_csv", "mosaic_tsv"}) {
    expect_python(name, {}, StreamFormat::mds);
  }
}

TEST(Streams, LitDataChunksEqualWhatPythonReads) {
  for (const char* name : {"litdata", "litdata_frames", "litdata_chunk", "litdata_sample", "litdata_leaf"}) {
    expect_python(name, {}, StreamFormat::litdata);
  }
  expect_python("litdata_tokens", {.block_size = 8}, StreamFormat::litdata);
  expect_python("litdata_numpy_tokens", {.block_size = 7}, StreamFormat::litdata);
}

TEST(Streams, WebDatasetArchivesEqualWhatPythonReads) {
  expect_python("webdataset", {}, StreamFormat::webdataset);
}

TEST(Streams, JsonLinesEqualWhatPythonReads) {
  expect_python("jsonl", {.format = StreamFormat::jsonl}, StreamFormat::jsonl);
}

}  // namespace
}  // namespace levin::streams_test
