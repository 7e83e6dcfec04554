// The loaders of a Fabric, and the passes over them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "levin/core/state.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"
#include "levin/trainer/fabric.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// The position of a pass in its loader.
struct FabricPosition {
  int64_t epoch = 0;
  int64_t next_batch = 0;
  bool trained = false;   // Fabric::step or backward was called in the pass
  bool stepped = false;   // Fabric::step was
  bool finished = false;  // what follows its last step is done
};

/// A loader that was set up.
struct FabricSource {
  std::shared_ptr<Loader> loader;
  int64_t num_batches = kUnlimited;                      // kUnlimited: not known
  int64_t batch_size = 0;                                // of all ranks together; 0: not known
  bool moves = true;                                     // its batches are moved to the device
  bool has_state = false;                                // the loader of some rank has a state
  const OpenPass* pass = nullptr;                        // the open pass; null: there is none
  std::optional<FabricPosition> resumed = std::nullopt;  // of the checkpoint: where the next pass continues
};

/// What a pass calls.
struct PassEvents {
  std::function<void(OpenPass&)> on_end;    // after the last batch of a pass that trained
  std::function<void(OpenPass&)> on_leave;  // in its destructor; must not throw
};

/// A pass over a loader, until it is destroyed.
class OpenPass {
 public:
  /// Throws Error for an epoch in which the checkpoint does not continue.
  OpenPass(Run& run, std::shared_ptr<FabricSource> source, int64_t epoch, PassEvents events);
  ~OpenPass();
  OpenPass(const OpenPass&) = delete;
  OpenPass& operator=(const OpenPass&) = delete;

  /// Fetches the next batch; returns false at the end.
  bool next();
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] int64_t index() const { return stream_.index(); }
  [[nodiscard]] bool is_last() const { return stream_.is_last(); }
  /// Returns whether next() has returned false.
  [[nodiscard]] bool is_over() const { return is_over_; }
  [[nodiscard]] bool knows_length() const { return source_->num_batches != kUnlimited; }
  /// Returns the number of batches that are left, with the present one; kUnlimited if it is not known.
  [[nodiscard]] int64_t batches_left() const;

  [[nodiscard]] FabricPosition& position() { return position_; }
  /// Returns the position for a checkpoint: the present batch counts as done, unless Fabric::step has had the batch
  /// before it and not this one.
  [[nodiscard]] FabricPosition saved_position() const;
  /// Returns the loader's state at saved_position().
  [[nodiscard]] State loader_state() const;

 private:
  Run& run_;
  std::shared_ptr<FabricSource> source_;
  FabricPosition position_;
  BatchStream stream_;
  PassEvents events_;
  Batch batch_ = {};
  bool is_over_ = false;
};

/// Prepares the one loader in `loader` for the run. Throws Error unless there is exactly one, and ConfigError if ranks
/// have different numbers of batches. Every rank calls it.
[[nodiscard]] std::shared_ptr<FabricSource> set_up_source(Run& run, const Loaders& loader,
                                                          const FabricLoaderOptions& options);

using FabricSources = std::vector<std::shared_ptr<FabricSource>>;
/// Returns the positions and states of the loaders. Every rank calls it.
[[nodiscard]] State sources_state(const Run& run, const FabricSources& sources);
/// Throws CheckpointError if the state is of a different number of loaders, or from inside a pass over a loader of
/// other batches.
void check_sources(const FabricSources& sources, const State& saved);
/// Restores what sources_state() has returned.
void restore_sources(const Run& run, const FabricSources& sources, const State& saved);

}  // namespace levin
