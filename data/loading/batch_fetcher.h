// One pass of a DataLoader: fetches batch b, on any thread and in any order. Immutable, so the worker threads share it
// without a lock.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/data/batch.h"
#include "levin/data/loading/dataset.h"
#include "levin/data/loading/sample_stacker.h"

namespace levin {

/// Makes one batch of samples; called by several workers concurrently.
using Collate = std::function<Batch(std::vector<Batch>)>;

/// The batches of one pass, by index: each is a function of the pass and the index alone.
class BatchFetcher {
 public:
  /// What a pass visits, and how its batches are made.
  struct Pass {
    std::shared_ptr<const Dataset> dataset = nullptr;
    std::shared_ptr<const Collate> collate = nullptr;  // null: stack
    at::Tensor order = {};                             // (samples) int64; undefined: 0, 1, 2, …
    int64_t num_samples = 0;
    int64_t batch_size = 1;
    std::vector<int64_t> ends = {};  // of each batch in `order`; none: batches of batch_size
    uint64_t seed = 0;
    int64_t epoch = 0;
    bool pins_memory = false;         // batches are made in pinned memory
    bool identifies_samples = false;  // batches say which their samples are
    int64_t first_number = 0;         // of batch 0 among the batches of all ranks
    int64_t number_step = 1;          // from one batch to the next
  };

  explicit BatchFetcher(Pass pass) : pass_(std::move(pass)) {}

  /// Throws DataError naming sample, batch, epoch and cause. Returns early, with an empty batch, once `abandoned`.
  [[nodiscard]] Batch fetch(int64_t batch_idx, const std::atomic<bool>* abandoned = nullptr) const;
  /// Same as fetch(), for worker threads: also copies to pinned memory what the data set made elsewhere.
  [[nodiscard]] Batch fetch_ahead(int64_t batch_idx, const std::atomic<bool>& abandoned) const;

 private:
  [[nodiscard]] Batch gather(int64_t batch_idx) const;
  [[nodiscard]] Batch get_each(int64_t batch_idx, const std::atomic<bool>* abandoned) const;
  [[nodiscard]] Batch get_one(int64_t index, int64_t batch_idx) const;
  void identify(Batch& batch, int64_t batch_idx, std::vector<int64_t> indices,
                std::vector<SkippedSample> skipped = {}) const;
  [[nodiscard]] Batch without_samples(int64_t batch_idx, std::vector<SkippedSample> skipped) const;
  [[nodiscard]] std::vector<int64_t> indices_of(int64_t batch_idx) const;
  [[nodiscard]] int64_t first_of(int64_t batch_idx) const;
  [[nodiscard]] int64_t count_of(int64_t batch_idx) const;
  [[nodiscard]] int64_t index_at(int64_t place) const;
  [[nodiscard]] uint64_t pass_seed() const;
  // Rethrows the current exception as a DataError that names the sample.
  [[noreturn]] void fail(const std::string& what, int64_t batch_idx) const;

  Pass pass_;
};

}  // namespace levin
