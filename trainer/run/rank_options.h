// What every rank of a run must have been given alike. Every function is called by every rank, at the same place; with
// one rank they do nothing. Each throws ConfigError naming the option that differs, as rank 0 and the other have it.
// Left out are fields that say so (Field::ranks_may_differ), and the options of objects that do not say what they have.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Before anything is set up: the entry point, its checkpoint, the trainer's options, the seed, module and data module,
/// and what Trainer::keep_config was given.
void check_same_options(Run& run);

/// The run's optimizers with their groups, and its schedulers.
void check_same_optimizers(RankCollectives& ranks, const Fit& fit);

/// `name`: "train_dataloader" or another.
void check_same_loaders(RankCollectives& ranks, const std::string& name, const Loaders& loaders);

}  // namespace levin
