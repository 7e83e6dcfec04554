// Data sets that are cut into shards, as Python's streaming libraries write them: MosaicML's MDS, JSON and CSV shards,
// LitData's chunks, WebDataset's tar archives, and JSON lines.
//
//   const auto store = open_store("s3://bucket/train");
//   const StreamIndex index = read_stream_index(*store);
//   const ShardInfo& info = index.shards[3];
//   store->fetch(info.key, "/tmp/3.packed");
//   check_shard_file(info, "/tmp/3.packed");
//   decompress_shard(info, "/tmp/3.packed", "/tmp/3");   // where info.compression is not empty
//   const auto shard = open_shard(index, 3, "/tmp/3");
//   Batch sample = shard->get(0);
//
// How values become fields: docs/streams.md. Nothing of a shard is executed: pickled values are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/storage/object_store.h"
#include "levin/data/streams/shard.h"
#include "levin/data/streams/shard_info.h"

namespace levin {

/// Reads index.json at the root of the store, or, where the options have a pattern or there is no index, makes the
/// index from the names of the files; sizes.json, if it exists, then has the number of samples of each tar archive.
/// Throws DataError naming the URL, what was expected and what was found.
[[nodiscard]] StreamIndex read_stream_index(const ObjectStore& store, const StreamOptions& options = {});

/// Returns the index in `text`, the content of the file `name`: index.json of mosaicml-streaming, litdata or
/// webdataset (wids). Throws DataError.
[[nodiscard]] StreamIndex parse_stream_index(const std::string& name, std::string_view text,
                                             const StreamOptions& options = {});

/// Returns the index of data sets without index.json: tar archives or files of JSON lines, in the order of `files`,
/// which are below `root`. Files with other endings are left out. Throws DataError if none is left, or if there are
/// files of both formats and the options do not choose one.
[[nodiscard]] StreamIndex index_of_files(const std::string& root, const std::vector<StoredObject>& files,
                                         const StreamOptions& options = {});

/// Returns the names that a pattern stands for, as in a shell and in WebDataset: "a-{000..002}.tar", "{x,y}/{1..3}".
/// Throws DataError if there are more than a million.
[[nodiscard]] std::vector<std::string> expand_braces(const std::string& pattern);

/// Opens a shard whose file, decompressed, is at `path`. Throws DataError naming path, byte, what was expected and
/// what was found if the file is damaged or does not have as many samples as the index says.
[[nodiscard]] std::unique_ptr<Shard> open_shard(const StreamIndex& index, size_t shard, const std::string& path);

/// Throws DataError if the file at `path`, as it lies in the store, does not have the size and the checksums in the
/// index.
void check_shard_file(const ShardInfo& info, const std::string& path);

/// Writes the decompressed content of the file `from` to `to`, whole or not at all, in little memory, and compares its
/// size and checksums with the index. Throws DataError naming `from`, and the byte in it, if the file is damaged or
/// larger than the index says, or than `max_bytes` where the index does not say.
void decompress_shard(const ShardInfo& info, const std::string& from, const std::string& to, uint64_t max_bytes);

}  // namespace levin
