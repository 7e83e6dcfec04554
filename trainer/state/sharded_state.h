// A run's state where the strategy shares weights or optimizers' state out over ranks (Strategy::is_sharded): made
// whole for a checkpoint in one file, taken apart when one is loaded. Every function is called by every rank.
#pragma once

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// What gather_checkpoint has put together gets ready to be written: the wholes instead of this rank's parts (rank 0
/// has them then, the others nothing), or, for a sharded checkpoint, this rank's parts and where they lie. Does nothing
/// without sharding. Blocks until all ranks arrive.
void prepare_for_writing(Strategy& strategy, const Fit& fit, CheckpointRequest& request);

/// In an accumulation window, where every backward reduces gradients (has_sharded_weights): their wholes, by the
/// parameters' names.
[[nodiscard]] State reduced_gradients(Sharding& sharding, const LightningModule& module);

/// This rank's parts of a whole optimizer state, as its load_state wants them in an UpdateScope.
[[nodiscard]] State optimizer_parts(const Sharding& sharding, const Optimizer& optimizer, const State& whole);

/// The weights of a checkpoint into this rank's parts and the module, during a run.
void restore_parts(Sharding& sharding, const LightningModule& module, const State& checkpoint);

/// The gradients' norm over all ranks, each of which has parts of them; a scalar tensor.
[[nodiscard]] at::Tensor norm_over_ranks(RankCollectives& ranks, const std::vector<at::Tensor>& params);

}  // namespace levin
