// A data set in shards, wherever they lie: what is read of it is copied to a cache first, unless it lies in a folder.
//
//   auto source = std::make_shared<StreamSource>("s3://bucket/train", StreamSourceOptions{.cache = "/scratch"});
//   levin::Batch sample = source->open(3)->get(0);
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/core/storage/object_store.h"
#include "levin/data/files/shard_cache.h"
#include "levin/data/streams/stream_index.h"

namespace levin {

/// Where copies of shards are kept, and how a data set is read.
struct StreamSourceOptions {
  StreamOptions stream = {};
  std::string cache = "";                    // a folder on this machine; "": default_shard_cache()
  ByteSize cache_size = {kShardCacheBytes};  // of all copies in the folder
  int64_t open_shards = 64;                  // shards that stay open after their use
};

/// The shards of one data set. Thread-safe.
class StreamSource {
 public:
  /// Reads the index. Throws DataError naming the URL, what was expected and what was found.
  explicit StreamSource(const std::string& url, StreamSourceOptions options = {});
  /// Same as above, for a store of the caller.
  StreamSource(std::shared_ptr<const ObjectStore> store, StreamSourceOptions options);
  ~StreamSource();
  StreamSource(const StreamSource&) = delete;
  StreamSource& operator=(const StreamSource&) = delete;

  [[nodiscard]] std::string url() const { return store_->url(); }
  [[nodiscard]] size_t shards() const { return index_.shards.size(); }
  [[nodiscard]] const StreamIndex& index() const { return index_; }
  [[nodiscard]] const ObjectStore& store() const { return *store_; }

  /// Returns the number of samples of all shards if the index has it.
  [[nodiscard]] std::optional<int64_t> size() const { return size_; }
  /// Returns the number of samples of a shard if it is known.
  [[nodiscard]] std::optional<int64_t> known_samples(size_t shard) const;
  /// Returns the number of samples of a shard, which is fetched if the index does not have it and it was never counted.
  [[nodiscard]] int64_t samples(size_t shard, const std::atomic<bool>* abandoned = nullptr);
  /// Returns the numbers of samples that are known so far, (shards) int64, -1: unknown. For checkpoints: the tensor
  /// does not change afterwards.
  [[nodiscard]] at::Tensor counts();
  /// Takes over numbers that were counted before. Throws DataError unless they are (shards) int64.
  void set_counts(const at::Tensor& counts);

  /// Opens a shard, which is fetched if it is not on this machine. Throws DataError naming the shard's URL, or if
  /// `abandoned` becomes true.
  [[nodiscard]] std::shared_ptr<const Shard> open(size_t shard, const std::atomic<bool>* abandoned = nullptr);

  /// Return whether a shard is copied to a cache, and whether any is.
  [[nodiscard]] bool copies(size_t shard) const;
  [[nodiscard]] bool copies_any() const { return cache_ != nullptr; }
  /// Copies a shard to the cache ahead of its use. Returns false if the cache has no room, or if another thread or
  /// process is copying the shard.
  bool bring(size_t shard, const std::atomic<bool>* abandoned);

 private:
  struct Entry;
  [[nodiscard]] std::string name_in_cache(size_t shard) const;
  [[nodiscard]] uint64_t bytes_in_cache(size_t shard) const;
  [[nodiscard]] ShardCache::Make fetching(size_t shard, const std::atomic<bool>* abandoned) const;
  void note_samples(size_t shard, int64_t samples);
  [[nodiscard]] std::shared_ptr<const Shard> open_file(size_t shard, const std::atomic<bool>* abandoned);
  void keep_open(size_t shard, std::shared_ptr<const Shard> opened);
  [[noreturn]] void fail(size_t shard) const;

  std::shared_ptr<const ObjectStore> store_;
  StreamSourceOptions options_;
  StreamIndex index_;
  std::optional<int64_t> size_ = {};
  std::unique_ptr<ShardCache> cache_ = nullptr;  // null if nothing is copied
  std::vector<std::unique_ptr<Entry>> entries_;
  std::mutex mutex_;               // guards open_ and counts_
  std::vector<size_t> open_ = {};  // shards that are kept open, used last at the end
  at::Tensor counts_ = {};         // of counts(); undefined: they have changed
};

}  // namespace levin
