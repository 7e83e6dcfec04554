// What an index of shards says, as the readers of all formats need it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/files/checksum.h"
#include "levin/core/options/fields.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/streams/shard.h"

namespace levin {

/// How a data set is cut into shards. automatic: by its index.json, or else by the endings of its files' names.
enum class StreamFormat { automatic, mds, litdata, webdataset, jsonl };
template <>
struct EnumNames<StreamFormat> {
  static constexpr EnumName<StreamFormat> names[] = {{"automatic", StreamFormat::automatic},
                                                     {"mds", StreamFormat::mds},
                                                     {"litdata", StreamFormat::litdata},
                                                     {"webdataset", StreamFormat::webdataset},
                                                     {"jsonl", StreamFormat::jsonl}};
};

/// What is read of a data set in shards.
struct StreamOptions {
  StreamFormat format = StreamFormat::automatic;
  std::string pattern = "";                       // keys below the root, such as "data-{000000..000099}.tar"; "": all
  std::vector<std::string> fields = {};           // fields of a sample to read, the others are not decoded; none: all
  int64_t block_size = 0;                         // tokens of a sample; only for LitData's TokensLoader
  ImageView image = {};                           // how images are decoded, cropped and resized
  uint64_t max_shard_bytes = uint64_t{64} << 30;  // of a decompressed shard, where the index does not tell its size
};

/// A checksum that an index names.
struct ShardChecksum {
  Checksum checksum = {};
  bool of_decompressed = false;  // else of the file as it lies in the store
};

/// One shard of a data set.
struct ShardInfo {
  std::string key = "";                       // of the file below the root, as it lies in the store
  std::string compression = "";               // "", "gz", "zst", and LitData's "zst-batch" and "zst-sample"
  uint64_t bytes = 0;                         // of the file as it lies in the store; 0: unknown
  uint64_t decompressed_bytes = 0;            // 0: unknown
  std::string version = "";                   // changes with the content, as the store says; "": unknown
  std::optional<int64_t> samples = {};        // nullopt: known when the shard is opened
  std::vector<ShardChecksum> checksums = {};  // all of the same content as the key, or of the decompressed one
};

/// The shards of a data set in order, and what is needed to read them.
struct StreamIndex {
  StreamFormat format = StreamFormat::automatic;
  std::vector<ShardInfo> shards = {};
  StreamOptions options = {};
  std::shared_ptr<const ShardReader> reader = nullptr;
};

}  // namespace levin
