// What a run does because it has several ranks: starting them, detecting differences early, agreeing on decisions of
// one of them. Every rank calls every function, at the same point of the run; with one rank they do nothing.
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

/// Returns the module's weights and buffers by name.
[[nodiscard]] ModuleTensors module_tensors(const LightningModule& module);

/// Runs `task` on rank 0 alone; returns its result, or throws its error, on every rank.
std::string on_rank_zero(RankCollectives& ranks, const std::function<std::string()>& task);
/// Runs `task` on every rank; if one throws, all throw an Error that names it.
void on_every_rank(RankCollectives& ranks, const std::function<void()>& task);
/// Runs `task` on the first rank of every node; an error of one is thrown on all ranks.
void once_per_node(RankCollectives& ranks, const std::function<void()>& task);

/// Gives every rank different random numbers, regardless of the program's seed. Rank 0 keeps its own.
void separate_random_numbers(const RankCollectives& ranks, int64_t global_step);

/// Records the position in the run for the launcher, which reports it if this rank dies or hangs.
void note_place(const Run& run, int64_t batch);

/// Ends the epoch after the running batch; with several ranks, after the batch at which all of them know.
void cut_epoch(const RankCollectives& ranks, Epoch& epoch);

/// A scope in which the module's buffers have rank 0's values on every rank. Ranks compute running statistics from
/// their own batches, and a checkpoint contains rank 0's: otherwise an evaluation would measure a model that no
/// checkpoint contains. Afterwards a buffer has its own value again unless it was changed in the scope.
class RankZeroBuffers {
 public:
  explicit RankZeroBuffers(const Run& run);
  ~RankZeroBuffers();
  RankZeroBuffers(const RankZeroBuffers&) = delete;
  RankZeroBuffers& operator=(const RankZeroBuffers&) = delete;

  /// Gives all ranks rank 0's values again after hooks that may have changed buffers, such as the hooks of an average
  /// of weights. Every rank calls it.
  void renew();

 private:
  struct Kept {
    at::Tensor buffer, own, received;
  };
  const Run& run_;
  std::vector<Kept> kept_ = {};
};

/// Makes a pass end for all ranks when it ends for one, if its length is not known from the start.
void end_together(RankCollectives& ranks, BatchStream& stream);
/// Makes the ranks agree on whether to stop, whether the epoch is cut, and whether a batch of it had a loss on any
/// rank. Blocks until all ranks call it.
void agree_on_stop(Run& run);
/// Returns the signal that a rank has received, which may not have reached all of them; of several the highest number,
/// so that SIGTERM, which ends the run, takes precedence over SIGUSR1. `own`: this rank's signal, 0 if none. Blocks
/// until all ranks call it.
[[nodiscard]] int agreed_signal(RankCollectives& ranks, int own);

/// Reduces epoch values that were logged with sync_dist over all samples of all ranks, and replaces other epoch values
/// by the values of the first rank that has them, so that callbacks decide the same on every rank. `idle_loaders`: the
/// loaders without a batch for this rank. Throws Error naming a metric that one rank lacks, except metrics of idle
/// loaders.
void sync_epoch_metrics(RankCollectives& ranks, MetricStore& store, const std::vector<int64_t>& idle_loaders = {});
/// Reduces the last batch's values that were logged with sync_dist.
void sync_step_metrics(Run& run, MetricStore& store);

// The following functions check that all ranks of a run have the same options. Each throws ConfigError naming the
// option that differs, with both values. They ignore fields marked Field::ranks_may_differ, and objects that do not
// report their options.

/// Checks the entry point, its checkpoint, the trainer's options, the seed, module and data module, and the
/// configuration given to RunAccess::keep_config. Called before anything is set up.
void check_same_options(Run& run);

/// Checks the run's optimizers with their groups, and its schedulers.
void check_same_optimizers(RankCollectives& ranks, const Fit& fit);

/// Checks loaders. `name`: the hook that gave them, such as "train_dataloader".
void check_same_loaders(RankCollectives& ranks, const std::string& name, const Loaders& loaders);

}  // namespace levin
