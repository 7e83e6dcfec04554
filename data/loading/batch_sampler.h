// Which samples make up each batch of a pass, where "batch_size samples of an order" does not say it: by length, by
// class, or by a rule of your own.
//
//   class Pairs : public levin::BatchSampler {
//     std::optional<int64_t> num_batches() const override { return 50; }
//     levin::IndexBatches batches(uint64_t seed, int64_t epoch) const override { … return {{0, 7}, {3, 9}, …}; }
//   };
//   levin::DataLoader loader(data, {.num_workers = 2}, std::make_shared<Pairs>());
//
// Batches are a function of (seed, epoch) and nothing else, as the order of a Sampler is: so a run that stops anywhere
// continues with the same batches, and the ranks of a run share them without a message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/core/fields.h"
#include "levin/data/loading/sampler.h"

namespace levin {

/// Batches of a pass, each a list of indices into the data set.
using IndexBatches = std::vector<std::vector<int64_t>>;

class BatchSampler {
 public:
  static const char* registry_name() { return "batch sampler"; }
  virtual ~BatchSampler() = default;

  /// Batches of each pass; nullopt: the number differs from pass to pass, and is known when a pass begins.
  [[nodiscard]] virtual std::optional<int64_t> num_batches() const = 0;

  /// The batches of one pass, all ranks' together: rank r of n takes number r, r + n, r + 2 n, …
  [[nodiscard]] virtual IndexBatches batches(uint64_t seed, int64_t epoch) const = 0;

  /// What a training pass does if its batches cannot be divided among the ranks. True: the largest are cut in two, and
  /// each sample is visited as often as before. False, for batches that must stay whole: those at the front are
  /// repeated.
  [[nodiscard]] virtual bool may_split() const { return false; }

  /// Samples of a full batch; nullopt: they differ.
  [[nodiscard]] virtual std::optional<int64_t> batch_size() const { return std::nullopt; }
};

/// The share of `rank`. `padded`: all ranks get equally many batches, see BatchSampler::may_split.
[[nodiscard]] IndexBatches share_of_batches(IndexBatches batches, int64_t rank, int64_t world_size, bool padded,
                                            bool may_split);

/// How many that are, of `batches` in all.
[[nodiscard]] int64_t count_share_of_batches(int64_t batches, int64_t rank, int64_t world_size, bool padded);

}  // namespace levin
