// Writes a data set in MosaicML's MDS shards, which mosaicml-streaming and StreamData read.
//
//   MosaicWriter writer(*open_store("train"), {{"x", "ndarray:float32:256", 1024}, {"label", "int", 8}});
//   writer.add({x_bytes, label_bytes});
//   writer.finish();
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/storage/object_store.h"

namespace levin {

/// A column of MDS.
struct MosaicColumn {
  std::string name;
  std::string encoding;                         // "int", "str", "jpeg", "ndarray:float32:256", …
  std::optional<uint64_t> size = std::nullopt;  // bytes of each value; nullopt: they differ
};

/// Writes shards one after another, and index.json last: a data set without its end has no index. A shard is held in
/// memory until it is complete. Every failure is a StorageError.
class MosaicWriter {
 public:
  /// A shard has at most `shard_bytes`, at most 2^31, unless a single sample is larger. `store` must outlive the
  /// object.
  /// The shards are called `name`.00000.mds, `name`.00001.mds, …
  MosaicWriter(ObjectStore& store, std::vector<MosaicColumn> columns, uint64_t shard_bytes = uint64_t{64} << 20,
               std::string name = "shard");
  ~MosaicWriter();
  MosaicWriter(const MosaicWriter&) = delete;
  MosaicWriter& operator=(const MosaicWriter&) = delete;

  /// Adds a sample, the bytes of its columns. Throws DataError for a wrong number of columns, for a value whose size is
  /// not that of its column, and for more than 2^30 bytes.
  void add(const std::vector<std::string>& values);
  /// Writes the last shard and the index.
  void finish();

  /// Returns the bytes of the shards that are written.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] size_t shards() const { return entries_.size(); }
  /// Returns the name of a shard, by its number.
  [[nodiscard]] std::string shard_name(size_t shard) const;

 private:
  void write_shard();
  [[nodiscard]] uint64_t header_bytes(size_t samples) const;

  ObjectStore& store_;
  std::vector<MosaicColumn> columns_;
  uint64_t shard_bytes_;
  std::string name_;
  std::string form_;                       // the columns as JSON, as each shard repeats them
  std::vector<std::string> entries_ = {};  // of index.json, JSON
  std::vector<uint32_t> ends_ = {};        // of the shard's samples in body_
  std::string body_ = "";
  uint64_t bytes_ = 0;
};

/// Returns the bytes of an MDS column "int".
[[nodiscard]] std::string mosaic_int(int64_t value);

/// Returns true if `key` is the name that MosaicWriter gives to a shard: "NAME.00042.mds".
[[nodiscard]] bool is_mosaic_shard(const std::string& key, const std::string& name);

}  // namespace levin
