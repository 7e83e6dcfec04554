// Checks that all ranks of a run have the same options. Every function is called by every rank, at the same place; with
// one rank they do nothing. Each throws ConfigError naming the option that differs, with both values. Exceptions are
// fields marked Field::ranks_may_differ, and objects that do not report their options.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// Before anything is set up: the entry point, its checkpoint, the trainer's options, the seed, module and data module,
/// and the configuration given to Trainer::keep_config.
void check_same_options(Run& run);

/// The run's optimizers with their groups, and its schedulers.
void check_same_optimizers(RankCollectives& ranks, const Fit& fit);

/// `name`: "train_dataloader" or another.
void check_same_loaders(RankCollectives& ranks, const std::string& name, const Loaders& loaders);

}  // namespace levin
