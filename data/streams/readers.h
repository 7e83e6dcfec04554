// What reads the shards of each format, and how their indexes become StreamIndex.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/streams/index_node.h"
#include "levin/data/streams/shard_info.h"

namespace levin::streams {

/// Return the index in the index.json of a library. Throw DataError.
[[nodiscard]] StreamIndex mosaic_index(const IndexNode& root, const StreamOptions& options);
[[nodiscard]] StreamIndex litdata_index(const IndexNode& root, const StreamOptions& options);
[[nodiscard]] StreamIndex wids_index(const IndexNode& root, const StreamOptions& options);

/// Return the reader of a format whose index says nothing about the samples.
[[nodiscard]] std::shared_ptr<const ShardReader> tar_reader(const StreamOptions& options);
[[nodiscard]] std::shared_ptr<const ShardReader> json_lines_reader(const StreamOptions& options);

/// A column of a delimited text file.
enum class TextType { text, integer, number };
struct TextColumn {
  std::string name;
  TextType type;
};
/// Returns the reader of mosaicml-streaming's CSV and TSV shards, whose first line names the columns.
[[nodiscard]] std::shared_ptr<const ShardReader> delimited_reader(std::vector<TextColumn> columns, char delimiter,
                                                                  const StreamOptions& options);

/// Returns the compression that the ending of a file's name tells, as in ShardInfo: "gz", "zst" or "".
[[nodiscard]] std::string compression_of(const std::string& key);

/// Throws DataError if the index says that the shard has a different number of samples.
void check_samples(const ShardInfo& info, const std::string& path, int64_t samples);

/// Rewrites LitData's chunks with compression inside, "zst-batch" and "zst-sample", as a chunk without: calls `write`
/// with the pieces of the file. Throws DataError naming the byte in `from`.
using WriteBytes = std::function<void(std::string_view)>;
void decompress_litdata(const ShardInfo& info, const std::string& from, uint64_t max_bytes, const WriteBytes& write);

}  // namespace levin::streams
