// The commit record of a sharded checkpoint: which files belong together, and the positions of their parts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/options/fields.h"
#include "levin/core/state.h"
#include "levin/core/storage/checkpoint_names.h"

namespace levin {

struct ShardFile {
  std::string file;
  int64_t bytes = 0;
  std::string checksum;  // of its header, which holds the checksums of its tensors

  template <class = void>
  static auto fields() {
    return levin::fields(field("file", &ShardFile::file, "name in the folder"),
                         field("bytes", &ShardFile::bytes, "its size"),
                         field("checksum", &ShardFile::checksum, "XXH3 of its header"));
  }
};

struct Piece {
  int64_t begin = 0;
  std::vector<int64_t> shape;

  template <class = void>
  static auto fields() {
    return levin::fields(field("begin", &Piece::begin, "first number, of the whole laid flat"),
                         field("shape", &Piece::shape, "of the whole"));
  }
};

struct Layout {
  std::vector<int64_t> shape;
  std::vector<int64_t> begins;  // by rank; -1: it has nothing of it

  template <class = void>
  static auto fields() {
    return levin::fields(field("shape", &Layout::shape, "of the whole"),
                         field("begins", &Layout::begins, "by rank: first number of its part; -1: none"));
  }
};

struct ShardedRecord {
  ConfigNode values = ConfigNode::map();  // the run's
  std::vector<ShardFile> shards = {};
  std::map<std::string, Layout> layout = {};
};

/// Keeps the lock on a shard that this process has written, so that it is known to be in use while others still write
/// theirs and there is no record yet.
void hold_shard(LockedFile shard);

/// Whether the name is valid for a shard: a plain file name, so that it cannot point elsewhere.
[[nodiscard]] bool is_shard_name(const std::string& name);

/// Reads and checks it. Throws CheckpointError naming the file.
[[nodiscard]] ShardedRecord read_sharded_record(const std::string& path);

/// Returns the names of the files that the record in a folder names, none if there is no record; nothing if it cannot
/// be read, and then none of them may be removed.
[[nodiscard]] std::optional<std::set<std::string>> committed_files(const std::string& folder);

/// The checksum in a shard's header, which covers the checksums of its tensors.
[[nodiscard]] std::string header_checksum_of(const CheckpointFile& shard);

}  // namespace levin
