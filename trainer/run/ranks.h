// What a run does because it has several ranks: starting them, detecting differences early, agreeing on decisions of
// one of them. Every function is called by every rank, at the same place; with one rank they do nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "levin/strategies/strategy.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/run.h"

namespace levin {

/// Starts this program once per device unless a launcher has, and then never returns: the process ends when its ranks
/// have. In a rank: connects to the others.
void start_ranks(Run& run);

/// Throws ConfigError if the ranks have different numbers of training batches in an epoch. Returns whether any rank's
/// loader has a state (`has_state`).
[[nodiscard]] bool check_same_batches(RankCollectives& ranks, int64_t batches, bool has_state);

/// The weights and buffers by name.
[[nodiscard]] ModuleTensors module_tensors(const LightningModule& module);

/// `task` on rank 0 alone; its result, or its error, on every rank.
std::string on_rank_zero(RankCollectives& ranks, const std::function<std::string()>& task);
/// `task` on the first rank of every node; an error of one is thrown on all.
void once_per_node(RankCollectives& ranks, const std::function<void()>& task);

/// Different random numbers on every rank, regardless of the program's seed. Rank 0 keeps its own.
void separate_random_numbers(const RankCollectives& ranks, int64_t global_step);

/// For the launcher, which reports it if this rank dies or hangs.
void note_place(const Run& run, int64_t batch);

/// The epoch ends after the running batch; with several ranks, after the batch at which all of them know.
void cut_epoch(const RankCollectives& ranks, Epoch& epoch);
/// During its lifetime the module's buffers have rank 0's values on every rank. Ranks compute running statistics from
/// their own batches, and a checkpoint holds rank 0's: without it an evaluation would measure a model that is nowhere.
/// Afterwards a buffer has its own value again unless it was changed meanwhile.
class RankZeroBuffers {
 public:
  explicit RankZeroBuffers(const Run& run);
  ~RankZeroBuffers();
  RankZeroBuffers(const RankZeroBuffers&) = delete;
  RankZeroBuffers& operator=(const RankZeroBuffers&) = delete;

  /// Does it again after hooks that may have changed buffers, such as the hooks of an average of weights. Every rank.
  void renew();

 private:
  struct Kept {
    at::Tensor buffer, own, received;
  };
  const Run& run_;
  std::vector<Kept> kept_ = {};
};

/// Where the length of a pass is not known from the start, it ends for all ranks when it ends for one.
void end_together(RankCollectives& ranks, BatchStream& stream);
/// Waits for all: from here on they agree on whether to stop, whether the epoch is cut, and whether a batch of it had a
/// loss on any rank.
void agree_on_stop(Run& run);
/// Waits for all. The signal that one of them has received, `own` on this rank (0: none), which may not have reached
/// all; of several the highest number, so that SIGTERM, which ends the run, takes precedence over SIGUSR1.
[[nodiscard]] int agreed_signal(RankCollectives& ranks, int own);

/// Epoch values that ranks have logged with sync_dist become those of all samples of all ranks, the others those of the
/// first rank that has them, so that what callbacks decide by them is the same everywhere. Throws Error naming a metric
/// that one rank lacks, except of `idle_loaders`, of which this rank has had no batch.
void sync_epoch_metrics(RankCollectives& ranks, MetricStore& store, const std::vector<int64_t>& idle_loaders = {});
/// The same for the last batch's values.
void sync_step_metrics(Run& run, MetricStore& store);

// Checks that all ranks of a run have the same options. Every function is called by every rank, at the same place; with
// one rank they do nothing. Each throws ConfigError naming the option that differs, with both values. Exceptions are
// fields marked Field::ranks_may_differ, and objects that do not report their options.

/// Before anything is set up: the entry point, its checkpoint, the trainer's options, the seed, module and data module,
/// and the configuration given to Trainer::keep_config.
void check_same_options(Run& run);

/// The run's optimizers with their groups, and its schedulers.
void check_same_optimizers(RankCollectives& ranks, const Fit& fit);

/// `name`: "train_dataloader" or another.
void check_same_loaders(RankCollectives& ranks, const std::string& name, const Loaders& loaders);

}  // namespace levin
