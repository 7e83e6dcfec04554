// A loader that changes another loader's batches: a subclass overrides next(), and what else differs.
//
//   class Scaled final : public levin::WrappedLoader {
//    public:
//     using WrappedLoader::WrappedLoader;
//     bool next(levin::Batch& batch) override {
//       if (!WrappedLoader::next(batch)) return false;
//       batch.tensors[0] = batch.tensors[0] / 255;
//       return true;
//     }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "levin/data/loader.h"

namespace levin {

/// Forwards every function of Loader to another loader, so that its state, its shards and its settings work. One batch
/// is one batch of the other loader.
class WrappedLoader : public Loader {
 public:
  explicit WrappedLoader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}

  void start(int64_t epoch, int64_t first_batch = 0) override { loader_->start(epoch, first_batch); }
  bool next(Batch& batch) override { return loader_->next(batch); }
  [[nodiscard]] bool may_be_read_ahead() const override { return loader_->may_be_read_ahead(); }
  [[nodiscard]] State state_dict() const override { return loader_->state_dict(); }
  void load_state_dict(const State& state) override { loader_->load_state_dict(state); }
  void add_to_checkpoint(State& state) const override { loader_->add_to_checkpoint(state); }
  void stop() override { loader_->stop(); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return loader_->num_batches(); }
  [[nodiscard]] std::optional<int64_t> batch_size() const override { return loader_->batch_size(); }
  bool set_batch_size(int64_t samples) override { return loader_->set_batch_size(samples); }
  void use_sequential_order() override { loader_->use_sequential_order(); }
  bool shard(int64_t rank, int64_t world_size, bool padded) override {
    return loader_->shard(rank, world_size, padded);
  }
  void pin_memory(bool pins) override { loader_->pin_memory(pins); }
  void identify_samples(bool identifies) override { loader_->identify_samples(identifies); }
  [[nodiscard]] ConfigNode written_options() const override { return loader_->written_options(); }
  [[nodiscard]] int64_t num_workers() const override { return loader_->num_workers(); }

 protected:
  [[nodiscard]] Loader& loader() const { return *loader_; }

 private:
  std::shared_ptr<Loader> loader_;
};

}  // namespace levin
