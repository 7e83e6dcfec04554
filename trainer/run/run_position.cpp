#include "levin/trainer/run/run_position.h"

#include <algorithm>

#include "levin/core/error.h"

namespace levin {

namespace {

bool ends_epoch(const Run& run) {
  return run.fit.epoch.last_batch || run.fit.epoch.cut;
}

// Epochs before and after the batch; within an epoch of unknown length the position is known only at its end.
double epochs_before(const Run& run) {
  const int64_t length = run.fit.train.num_batches[0];
  const double within =
      length == kUnlimited ? 0 : static_cast<double>(run.fit.epoch.batch_idx) / static_cast<double>(length);
  return static_cast<double>(run.progress.epoch) + within;
}

double epochs_after(const Run& run) {
  const int64_t length = run.fit.train.num_batches[0];
  const auto epoch = static_cast<double>(run.progress.epoch);
  if (ends_epoch(run)) return epoch + 1;
  return length == kUnlimited ? epoch
                              : epoch + static_cast<double>(run.fit.epoch.batch_idx + 1) / static_cast<double>(length);
}

// The share of the run after this many steps and epochs, by whichever limit is nearer.
double share_of_run(const RunPlan& plan, double steps, double epochs) {
  double share = 0;
  if (plan.max_steps != kUnlimited) share = std::max(share, steps / static_cast<double>(plan.max_steps));
  if (plan.max_epochs != kUnlimited) share = std::max(share, epochs / static_cast<double>(plan.max_epochs));
  return share;
}

bool completes_share_of_run(const Run& run, const Period& period) {
  const auto steps = static_cast<double>(run.progress.global_step);
  const bool stepped = run.fit.epoch.window.ended() && run.progress.window_stepped;
  return period.ends_between(share_of_run(run.plan, steps - (stepped ? 1 : 0), epochs_before(run)),
                             share_of_run(run.plan, steps, epochs_after(run)));
}

bool completes_epochs(const Run& run, const Period& period) {
  if (const int64_t whole = period.whole_epochs(); whole > 0)
    return ends_epoch(run) && (run.progress.epoch + 1) % whole == 0;
  if (run.fit.train.num_batches[0] == kUnlimited) {
    throw Error("a period of " + period.text() +
                ": the share of an epoch of unknown length is not known either. Use a number of batches (500ba).");
  }
  return period.ends_between(epochs_before(run), epochs_after(run));
}

}  // namespace

std::optional<double> share_done(const Run& run) {
  if (run.plan.max_steps == kUnlimited && run.plan.max_epochs == kUnlimited) return std::nullopt;
  const int64_t length = run.fit.train.num_batches.empty() ? 0 : run.fit.train.num_batches[0];
  const bool inside = run.fit.epoch.running && length > 0 && length != kUnlimited;
  const double within = inside ? static_cast<double>(run.fit.epoch.next_batch) / static_cast<double>(length) : 0;
  return std::min(1.0, share_of_run(run.plan, static_cast<double>(run.progress.global_step),
                                    static_cast<double>(run.progress.epoch) + within));
}

// Limits count over all fits of a trainer, as in Lightning, where a second fit with the same limit trains nothing too.
std::string why_nothing_is_trained(const Run& run) {
  if (run.fit.train.loaders.empty()) return "limit_train_batches is 0.";
  const bool by_steps = run.progress.global_step >= run.plan.max_steps;
  if (!by_steps && run.progress.epoch < run.plan.max_epochs) return run.entry.stop_reason + ".";
  const std::string limit = by_steps ? "max_steps (" + std::to_string(run.plan.max_steps) + ") is reached."
                                     : "max_epochs (" + std::to_string(run.plan.max_epochs) + ") is reached.";
  if (!run.has_trained) return limit;
  return limit +
         " It counts over all fits of this Trainer: set a larger one, or fit with a new Trainer. To train on data in "
         "parts, return one part per epoch from train_dataloader(), with reload_dataloaders_every_n_epochs: 1.";
}

bool completes(const Run& run, const Period& period) {
  if (run.fit.train.loaders.empty()) {
    throw Error("completes: no training batch is running. Call it in on_train_batch_end.");
  }
  switch (period.unit()) {
    case PeriodUnit::batches:
      return period.ends_between(static_cast<double>(run.progress.total_batches - 1),
                                 static_cast<double>(run.progress.total_batches));
    case PeriodUnit::epochs: return completes_epochs(run, period);
    case PeriodUnit::run: return completes_share_of_run(run, period);
    case PeriodUnit::time: break;
  }
  throw Error("a period of " + period.text() +
              ": which batch completes a time is not known here. Measure the time, and let all ranks agree on it "
              "(Strategy::any).");
}

}  // namespace levin
