// A source of batches for the trainer: in order, one pass after another.
//
//   loader->start(epoch);
//   for (levin::Batch batch; loader->next(batch);) …
//
// One thread drives a loader. DataLoader (data/loading/dataloader.h) is the loader of data sets; a stream is a
// subclass.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/state.h"
#include "levin/data/batch.h"

namespace levin {

/// The interface of loaders. A subclass implements start(), next() and num_batches(). Each rank has its own loader,
/// which shard() restricts to the rank's samples.
class Loader : public Stateful {
 public:
  static const char* registry_name() { return "loader"; }

  /// Begins a pass, even in the middle of a previous pass; the batches before `first_batch` are skipped without being
  /// fetched.
  virtual void start(int64_t epoch, int64_t first_batch = 0) = 0;

  /// Fetches the next batch; returns false at the end of the pass. Throws DataError if a sample fails; start() begins a
  /// new pass.
  virtual bool next(Batch& batch) = 0;

  /// Returns whether the trainer may call next() before it has trained the batch before. It does so where it must know
  /// whether a batch is the last (a loader of unknown length), and to copy batches to a GPU during the step before.
  /// Override it to return false where batches depend on the weights (on-policy data): then next() is called when the
  /// batch before is trained, and hooks of the last batch of a loader of unknown length do not know that it is the
  /// last.
  [[nodiscard]] virtual bool may_be_read_ahead() const { return true; }

  /// Returns the loader's own state in checkpoints, such as its position in a stream or a generator's state: what the
  /// next call of next() continues from. Called before each batch is fetched, so it should be cheap; the tensors in it
  /// must not change afterwards. A loader that has a state has one from the beginning on. Each rank has its own.
  [[nodiscard]] State state_dict() const override { return Stateful::state_dict(); }
  /// Called before the start() with which a resumed run continues. The state already accounts for the batches before
  /// `first_batch`: do not skip them again. Not called if the checkpoint has no state.
  void load_state_dict(const State& saved) override { Stateful::load_state_dict(saved); }

  /// Adds to state_dict(), for a checkpoint, what is too large for a copy before each batch, such as the rows of a
  /// replay buffer. Called when a checkpoint is written, so unlike state_dict() it returns what the loader holds then,
  /// even if that is after the batch that a resumed run takes first. load_state_dict() gets it with the state, but not
  /// when a pass in progress is merely continued after another one.
  virtual void add_to_checkpoint(State& /*state*/) const {}

  /// Ends the threads that fetch batches ahead; start() begins a new pass.
  virtual void stop() {}

  /// Returns the number of batches of a pass; nullopt if unknown (streams).
  [[nodiscard]] virtual std::optional<int64_t> num_batches() const = 0;

  /// Returns the number of samples of a full batch; nullopt if unknown.
  [[nodiscard]] virtual std::optional<int64_t> batch_size() const { return std::nullopt; }

  /// Sets the batch size from the next start() on. Returns false if this loader cannot change its batch size.
  virtual bool set_batch_size(int64_t /*samples*/) { return false; }

  /// From the next start() on, uses the same order in every pass (overfit_batches). Does nothing without an order.
  virtual void use_sequential_order() {}

  /// From the next start() on, yields only the shard of `rank`: every world_size-th sample of the order, so that the
  /// ranks' batches with the same index form a global batch. With `padded`, samples at the front are repeated until all
  /// ranks have the same number. Returns false if this loader cannot be split.
  virtual bool shard(int64_t /*rank*/, int64_t /*world_size*/, bool /*padded*/) { return false; }

  /// From the next start() on, allocates batches in pinned memory because they will be copied to a device, or stops
  /// doing so. A loader may ignore it: its batches are then copied to pinned memory when they are used.
  virtual void pin_memory(bool /*pins*/) {}

  /// From the next start() on, gives batches the ids of their samples (Batch::ids) for predictions, or stops doing so.
  /// A loader that does not know the ids ignores it.
  virtual void identify_samples(bool /*identifies*/) {}

  /// Returns the options it was created with, as in a run file; null if unknown. Ranks compare them.
  [[nodiscard]] virtual ConfigNode written_options() const { return {}; }

  /// Returns the number of threads that fetch batches ahead; 0 if next() itself fetches.
  [[nodiscard]] virtual int64_t num_workers() const { return 0; }
};

/// A list of loaders in order. A single loader needs no braces.
class Loaders {
 public:
  Loaders() = default;
  Loaders(std::initializer_list<std::shared_ptr<Loader>> list) : loaders_(list) {}
  Loaders(std::vector<std::shared_ptr<Loader>> list)
      : loaders_(std::move(list)) {}  // NOLINT(google-explicit-constructor)

  /// A loader that the caller keeps using; a null pointer means no loader.
  template <class T>
  requires std::derived_from<T, Loader> Loaders(std::shared_ptr<T> loader) {  // NOLINT(google-explicit-constructor)
    if (loader != nullptr) loaders_.push_back(std::move(loader));
  }
  /// A loader created in the call: fit(model, DataLoader(data, {.batch_size = 64})).
  template <class T>
  requires(std::derived_from<T, Loader> && !std::is_const_v<T>)
      Loaders(T&& loader)  // NOLINT(google-explicit-constructor)
      : loaders_{std::make_shared<T>(std::forward<T>(loader))} {}
  /// A loader owned by the caller, which must outlive this.
  Loaders(Loader& loader)  // NOLINT(google-explicit-constructor)
      : loaders_{std::shared_ptr<Loader>(std::shared_ptr<Loader>(), &loader)} {}

  void push_back(std::shared_ptr<Loader> loader) { loaders_.push_back(std::move(loader)); }
  [[nodiscard]] bool empty() const { return loaders_.empty(); }
  [[nodiscard]] size_t size() const { return loaders_.size(); }
  [[nodiscard]] const std::shared_ptr<Loader>& operator[](size_t index) const { return loaders_[index]; }
  [[nodiscard]] auto begin() const { return loaders_.begin(); }
  [[nodiscard]] auto end() const { return loaders_.end(); }

 private:
  std::vector<std::shared_ptr<Loader>> loaders_ = {};
};

}  // namespace levin
