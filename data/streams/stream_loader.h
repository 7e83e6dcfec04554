// Batches of a data set in shards, in a folder, on a web server or in a bucket of S3.
//
//   auto source = std::make_shared<levin::StreamSource>("s3://bucket/train");
//   levin::StreamLoader loader(source, {.batch_size = 64, .shuffle = true, .num_workers = 4});
//
// The order is a function of seed and epoch alone (Note [Order of a stream]): it is the same for any number of ranks
// and workers, a batch can be made without the ones before it, and a resumed run reads no more than it needs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "levin/core/options/fields.h"
#include "levin/data/loader.h"
#include "levin/data/loading/batch_fetcher.h"
#include "levin/data/loading/prefetcher.h"
#include "levin/data/streams/stream_source.h"

namespace levin {

/// Options of StreamLoader.
struct StreamLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  int64_t shuffle_shards = 8;   // shards whose samples are shuffled together
  bool drop_last = false;       // leave out an incomplete last batch
  int64_t num_workers = 0;      // threads that make batches ahead; 0: next() makes them itself
  int64_t prefetch_factor = 2;  // batches made ahead per worker
  int64_t prefetch_shards = 8;  // shards that are fetched ahead
  int64_t fetch_threads = 4;    // transfers at once
  int64_t seed = -1;            // of the order and of sample_generator(); -1: the run's seed
  template <class = void>
  static auto fields() {
    using O = StreamLoaderOptions;
    return levin::fields(
        field("batch_size", &O::batch_size, "samples of a batch").min(1),
        field("shuffle", &O::shuffle, "a new order of shards and samples for every epoch"),
        field("shuffle_shards", &O::shuffle_shards, "shards whose samples are shuffled together").min(1).max(65536),
        field("drop_last", &O::drop_last, "leave out an incomplete last batch"),
        field("num_workers", &O::num_workers, "threads that make batches ahead; 0: none")
            .min(0)
            .max(1024)
            .ranks_may_differ(),
        field("prefetch_factor", &O::prefetch_factor, "batches made ahead per worker")
            .min(1)
            .max(1024)
            .ranks_may_differ(),
        field("prefetch_shards", &O::prefetch_shards, "shards that are fetched ahead")
            .min(0)
            .max(65536)
            .ranks_may_differ(),
        field("fetch_threads", &O::fetch_threads, "shards that are fetched at once").min(1).max(256).ranks_may_differ(),
        field("seed", &O::seed, "of the order and the augmentation; -1: the run's seed").min(-1));
  }
};

/// A loader of the samples of a data set in shards. Its number of batches is known if the index has the number of
/// samples of each shard. next() throws DataError naming shard and sample if one cannot be read.
class StreamLoader final : public Loader {
 public:
  using Options = StreamLoaderOptions;
  /// Changes a sample, such as by augmentation with sample_generator(); called by several workers at once.
  using Transform = std::function<Batch(Batch sample)>;

  /// `collate`: makes a batch of samples, instead of stacking. Throws ConfigError for options out of range.
  explicit StreamLoader(std::shared_ptr<StreamSource> source, StreamLoaderOptions options = {},
                        Transform transform = nullptr, Collate collate = nullptr);
  ~StreamLoader() override;
  StreamLoader(StreamLoader&&) = default;

  void start(int64_t epoch, int64_t first_batch = 0) override;
  bool next(Batch& batch) override;
  void stop() override;
  /// Returns which data set it is, and the numbers of samples that were counted: a resumed run does not count again.
  [[nodiscard]] State state_dict() const override;
  /// Throws DataError if the checkpoint was saved with another data set.
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::optional<int64_t> num_batches() const override;
  [[nodiscard]] std::optional<int64_t> batch_size() const override { return settings_.options.batch_size; }
  bool set_batch_size(int64_t samples) override;
  void use_sequential_order() override { settings_.options.shuffle = false; }
  bool shard(int64_t rank, int64_t world_size, bool padded) override;
  void pin_memory(bool pins) override { settings_.pins_memory = pins; }
  void identify_samples(bool identifies) override { settings_.identifies_samples = identifies; }
  [[nodiscard]] ConfigNode written_options() const override { return write_options(settings_.options); }
  [[nodiscard]] int64_t num_workers() const override { return settings_.options.num_workers; }

  [[nodiscard]] const StreamLoaderOptions& options() const { return settings_.options; }
  [[nodiscard]] const std::shared_ptr<StreamSource>& source() const { return settings_.source; }

 private:
  // What a pass needs of its loader.
  struct Settings {
    std::shared_ptr<StreamSource> source = nullptr;
    StreamLoaderOptions options = {};
    std::shared_ptr<const Transform> transform = nullptr;
    std::shared_ptr<const Collate> collate = nullptr;
    int64_t rank = 0;
    int64_t world_size = 1;
    bool padded = false;
    bool pins_memory = false;
    bool identifies_samples = false;

    // As in DataLoader: in a prediction the ranks share batches, so that these are the batches of one process.
    [[nodiscard]] bool shares_whole_batches() const { return identifies_samples && !padded; }
  };
  class Pass;
  void abandon();

  Settings settings_;
  std::shared_ptr<const Pass> pass_ = nullptr;  // in progress
  int64_t position_ = 0;                        // next batch
  std::shared_ptr<Prefetcher> prefetcher_ = nullptr;
};

}  // namespace levin
