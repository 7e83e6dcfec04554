// A shard: a file of samples that can be read in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "levin/data/batch.h"

namespace levin {

struct StreamIndex;

/// The samples of one file, which is mapped: only what is touched is in memory. Thread-safe.
class Shard {
 public:
  virtual ~Shard() = default;
  Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// Returns the number of samples.
  [[nodiscard]] virtual int64_t size() const = 0;

  /// Returns a sample, a batch without the batch dimension, in memory of its own. Throws DataError naming file, sample,
  /// field and byte if it is damaged.
  [[nodiscard]] virtual Batch get(int64_t index) const = 0;

  /// Returns what identifies the sample in its data set: WebDataset's key, or "FILE:INDEX".
  [[nodiscard]] virtual std::string sample_id(int64_t index) const = 0;
};

/// Opens the shards of one data set. Each format has its own.
class ShardReader {
 public:
  virtual ~ShardReader() = default;
  ShardReader() = default;
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  /// See open_shard().
  [[nodiscard]] virtual std::unique_ptr<Shard> open(const StreamIndex& index, size_t shard,
                                                    const std::string& path) const = 0;
};

}  // namespace levin
