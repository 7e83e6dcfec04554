#include "levin/data/loading/replay_loader.h"

#include <string>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

ReplayLoader::ReplayLoader(std::shared_ptr<ReplayBuffer> buffer, ReplayLoaderOptions options)
    : buffer_(std::move(buffer)), options_(checked(options, "ReplayLoaderOptions")) {
  if (buffer_ == nullptr) throw DataError("ReplayLoader: no buffer was given.");
}

void ReplayLoader::start(int64_t /*epoch*/, int64_t first_batch) {
  if (first_batch < 0 || first_batch > options_.batches_per_epoch) {
    throw DataError("ReplayLoader: cannot start at batch " + std::to_string(first_batch) + ": a pass has " +
                    count_of(options_.batches_per_epoch, "batch", "batches") +
                    ". Was batches_per_epoch changed since the start?");
  }
  position_ = first_batch;
}

bool ReplayLoader::next(Batch& batch) {
  if (position_ >= options_.batches_per_epoch) return false;
  batch = buffer_->sample(options_.batch_size);
  ++position_;
  return true;
}

bool ReplayLoader::set_batch_size(int64_t samples) {
  ReplayLoaderOptions changed = options_;
  changed.batch_size = samples;
  options_ = checked(changed, "ReplayLoaderOptions");
  return true;
}

// The draws of the state itself are from before its batch; the buffer's are of the checkpoint.
void ReplayLoader::load_state_dict(const State& saved) {
  const State rows = saved.part("buffer");
  if (!rows.empty()) buffer_->load_state_dict(rows);
  buffer_->load_draws_state(saved);
}

ConfigNode ReplayLoader::written_options() const {
  return write_options(options_);
}

}  // namespace levin
