// The loader of data sets: batches in an order that is a function of (seed, epoch), fetched by next() itself or ahead
// of it by threads. The number of threads affects only speed: the batches, their order and the augmentation are the
// same.
//
//   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .num_workers = 2});
//   DataLoader texts(dataset, {.shuffle = true, .max_tokens = 4096, .bucket_by_length = true});
//
// Without shuffling, batches of a TensorDataset are views of its tensors: do not change them in place.
// One thread drives the loader; the data set is read by all of its workers at once.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "levin/core/options/fields.h"
#include "levin/data/loader.h"
#include "levin/data/loading/batch_fetcher.h"
#include "levin/data/loading/dataset.h"
#include "levin/data/loading/prefetcher.h"
#include "levin/data/loading/sampler.h"

namespace levin {

/// Options of DataLoader, by PyTorch's names where PyTorch has them.
struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;         // a new permutation for every epoch
  bool drop_last = false;       // leave out an incomplete last batch
  int64_t num_workers = 0;      // threads that fetch ahead; 0: next() fetches itself
  int64_t prefetch_factor = 2;  // batches fetched ahead per worker
  int64_t seed = -1;            // of the order and of sample_generator(); -1: the run's seed
  int64_t max_tokens = 0;       // longest sample x samples of a batch, instead of batch_size; 0: batches of batch_size
  bool bucket_by_length = false;  // samples of similar length together
  template <class = void>
  static auto fields() {
    using O = DataLoaderOptions;
    return levin::fields(
        field("batch_size", &O::batch_size, "samples of a batch").min(1),
        field("shuffle", &O::shuffle, "a new permutation of the samples for every epoch"),
        field("drop_last", &O::drop_last, "leave out an incomplete last batch"),
        field("num_workers", &O::num_workers, "threads that fetch batches ahead; 0: none")
            .min(0)
            .max(1024)
            .ranks_may_differ(),
        field("prefetch_factor", &O::prefetch_factor, "batches fetched ahead per worker")
            .min(1)
            .max(1024)
            .ranks_may_differ(),
        field("seed", &O::seed, "of the order and the augmentation; -1: the run's seed").min(-1),
        field("max_tokens", &O::max_tokens,
              "longest sample x samples of a batch, instead of batch_size; 0: batches of batch_size")
            .min(0),
        field("bucket_by_length", &O::bucket_by_length, "samples of similar length together, so that less is padded"));
  }
};

/// A loader of the samples of a data set. Throws DataError from the constructor if the data set or the sampler is
/// empty, from start() if the sampler's indices do not fit the data set, and from next() naming a sample that cannot be
/// read.
class DataLoader final : public Loader {
 public:
  using Options = DataLoaderOptions;

  /// `sampler`: the order, instead of `shuffle`. `collate`: makes a batch of samples, instead of stacking; the data set
  /// is then read sample by sample. Throws ConfigError for options out of range or shuffle together with a sampler.
  explicit DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options = {},
                      std::shared_ptr<Sampler> sampler = nullptr, Collate collate = nullptr);

  /// `batch_sampler`: which samples make up a batch, instead of batch_size, shuffle, drop_last, max_tokens and
  /// bucket_by_length. Throws ConfigError if one of these is set too.
  template <std::derived_from<BatchSampler> B>
  DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options, std::shared_ptr<B> batch_sampler,
             Collate collate = nullptr)
      : DataLoader(std::move(dataset), options, std::shared_ptr<const BatchSampler>(std::move(batch_sampler)),
                   std::move(collate), Private{}) {}

  /// Same as above, with a data set by value: DataLoader(TensorDataset{x, y}, {.batch_size = 64}). A TensorDataset that
  /// is passed by name is copied, and shares its tensors; move other data sets, or pass a std::shared_ptr.
  template <class D, class... Rest>
  requires std::derived_from<std::remove_cvref_t<D>, Dataset>
  explicit DataLoader(D&& dataset, DataLoaderOptions options = {}, Rest&&... rest)
      : DataLoader(std::make_shared<std::remove_cvref_t<D>>(std::forward<D>(dataset)), options,
                   std::forward<Rest>(rest)...) {
    static_assert(!std::is_lvalue_reference_v<D> || std::is_same_v<std::remove_cvref_t<D>, TensorDataset>,
                  "the loader would read a copy of this data set: pass a std::shared_ptr, or std::move(dataset)");
  }

  DataLoader(DataLoader&&) = default;  // and no copies: they would share the worker threads
  /// For hooks: return DataLoader(data, {.batch_size = 64});
  operator std::shared_ptr<Loader>() &&;  // NOLINT(google-explicit-constructor)

  void start(int64_t epoch, int64_t first_batch = 0) override;
  bool next(Batch& batch) override;
  void stop() override;
  [[nodiscard]] std::optional<int64_t> num_batches() const override;
  [[nodiscard]] std::optional<int64_t> batch_size() const override;
  /// Throws ConfigError for less than one sample. False with a batch sampler.
  bool set_batch_size(int64_t samples) override;
  void use_sequential_order() override;
  /// Batches that identify their samples (identify_samples) are shared as a whole: rank r gets every world_size-th
  /// batch of one process, from batch r on, so that predictions do not depend on the number of ranks.
  bool shard(int64_t rank, int64_t world_size, bool padded) override;
  void pin_memory(bool pins) override { pins_memory_ = pins; }
  void identify_samples(bool identifies) override { identifies_samples_ = identifies; }
  [[nodiscard]] ConfigNode written_options() const override;
  [[nodiscard]] int64_t num_workers() const override { return options_.num_workers; }

  [[nodiscard]] const DataLoaderOptions& options() const { return options_; }
  [[nodiscard]] const std::shared_ptr<Dataset>& dataset() const { return dataset_; }

 private:
  struct Private {};
  DataLoader(std::shared_ptr<Dataset> dataset, DataLoaderOptions options,
             std::shared_ptr<const BatchSampler> batch_sampler, Collate collate, Private);
  void start_up(Collate collate);
  void use_batches_by_length();
  [[nodiscard]] int64_t count_samples() const;  // of this rank
  [[nodiscard]] bool shares_whole_batches() const;
  void take_whole_batches(BatchFetcher::Pass& pass) const;
  [[nodiscard]] at::Tensor own_share(const at::Tensor& order) const;
  [[nodiscard]] BatchFetcher::Pass cut_by_sampler(int64_t epoch) const;
  [[nodiscard]] BatchFetcher::Pass cut_by_batch_sampler(int64_t epoch) const;
  void make_pass(int64_t epoch);

  std::shared_ptr<Dataset> dataset_;
  DataLoaderOptions options_;
  std::shared_ptr<const Sampler> sampler_;             // null with a batch sampler
  std::shared_ptr<const BatchSampler> batch_sampler_;  // or null
  std::shared_ptr<const Collate> collate_;             // null: stack
  int64_t rank_ = 0;
  int64_t world_size_ = 1;
  bool padded_ = false;      // ranks have the same number of samples
  bool same_order_ = false;  // every pass in the order of epoch 0
  bool pins_memory_ = false;
  bool identifies_samples_ = false;

  std::shared_ptr<const BatchFetcher> pass_;  // in progress; null before start() and after a failure
  int64_t pass_batches_ = 0;                  // of this rank
  int64_t position_ = 0;                      // next batch of the pass
  std::shared_ptr<Prefetcher> prefetcher_;    // null without worker threads
};

}  // namespace levin
