// A run's state if the strategy shards weights or optimizer state over ranks (Sharding::is_sharded): gathered for a
// checkpoint in one file, and sharded again when a checkpoint is loaded. Optimizer::layout() describes how each tensor
// of an optimizer's state follows its parameter. Every rank calls every function.
#pragma once

#include <string>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Prepares the result of gather_checkpoint for writing: the whole tensors instead of this rank's shards (on rank 0;
/// empty on others), or, for a sharded checkpoint, this rank's shards and their offsets. Without sharding it only
/// checks the optimizers' state. Throws Error if an optimizer's state contradicts its layout(). Blocks until all ranks
/// arrive.
void prepare_for_writing(Strategy& strategy, const Fit& fit, CheckpointRequest& request);

/// Returns the full gradients by the parameters' names: in an accumulation window, where every backward reduces
/// gradients (has_sharded_weights).
[[nodiscard]] State reduced_gradients(Sharding& sharding, const LightningModule& module);

/// Returns this rank's shards of a full optimizer state, as its load_state_dict requires them in an UpdateScope.
[[nodiscard]] State optimizer_parts(const Sharding& sharding, const Optimizer& optimizer, const State& whole);

/// Loads the weights and buffers of a checkpoint into this rank's shards and the module, during a run. Throws as
/// restore_weights does.
void restore_parts(Sharding& sharding, LightningModule& module, const State& checkpoint, const std::string& path);

/// Returns the norm of gradients that are sharded over ranks; a scalar tensor.
[[nodiscard]] at::Tensor norm_over_ranks(RankCollectives& ranks, const std::vector<at::Tensor>& params);

}  // namespace levin
