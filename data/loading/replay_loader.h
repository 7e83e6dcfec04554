// A replay buffer as a loader.
//
//   auto buffer = std::make_shared<levin::ReplayBuffer>(levin::ReplayBufferOptions{.capacity = 100'000});
//   auto loader = fabric.setup_dataloaders(levin::ReplayLoader(buffer, {.batch_size = 64, .batches_per_epoch = 1000}));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "levin/core/options/fields.h"
#include "levin/data/loader.h"
#include "levin/data/loading/replay_buffer.h"

namespace levin {

/// Options of ReplayLoader.
struct ReplayLoaderOptions {
  int64_t batch_size = 1;
  int64_t batches_per_epoch = 1000;
  template <class = void>
  static auto fields() {
    using O = ReplayLoaderOptions;
    return levin::fields(field("batch_size", &O::batch_size, "rows of a batch").min(1),
                         field("batches_per_epoch", &O::batches_per_epoch, "batches of a pass").min(1));
  }
};

/// Batches of ReplayBuffer::sample(), each drawn when the batch before is trained. Other threads may add rows
/// meanwhile.
///
/// Ranks: each rank has a buffer of its own with the rows that it adds, and shard() leaves it alone. Ranks that add the
/// same rows need different seeds, or they draw the same batches.
///
/// Checkpoints contain each rank's buffer at the moment of writing; rank 0 has all of them in memory then. A resumed
/// run continues bitwise identically if the checkpoint is written between batches, after what changes the buffer. If it
/// is written while a batch is trained, the resumed run draws this batch again, from the rows of that moment.
class ReplayLoader final : public Loader {
 public:
  using Options = ReplayLoaderOptions;

  /// Throws ConfigError for options out of range and DataError without a buffer.
  explicit ReplayLoader(std::shared_ptr<ReplayBuffer> buffer, ReplayLoaderOptions options = {});

  /// Throws DataError for a first batch beyond the pass.
  void start(int64_t epoch, int64_t first_batch = 0) override;
  /// Throws DataError if the buffer is empty.
  bool next(Batch& batch) override;
  [[nodiscard]] bool may_be_read_ahead() const override { return false; }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return options_.batches_per_epoch; }
  [[nodiscard]] std::optional<int64_t> batch_size() const override { return options_.batch_size; }
  /// Throws ConfigError for less than one sample.
  bool set_batch_size(int64_t samples) override;
  bool shard(int64_t /*rank*/, int64_t /*world_size*/, bool /*padded*/) override { return true; }
  [[nodiscard]] State state_dict() const override { return buffer_->draws_state(); }
  void add_to_checkpoint(State& state) const override { state.put("buffer", buffer_->state_dict()); }
  void load_state_dict(const State& saved) override;
  [[nodiscard]] ConfigNode written_options() const override;

  [[nodiscard]] const std::shared_ptr<ReplayBuffer>& buffer() const { return buffer_; }

 private:
  std::shared_ptr<ReplayBuffer> buffer_;
  ReplayLoaderOptions options_;
  int64_t position_ = 0;  // next batch of the pass
};

}  // namespace levin
