#include "levin/trainer/run/fit_length.h"

#include <algorithm>

#include "levin/core/options/error.h"
#include "levin/trainer/accumulation_schedule.h"
#include "levin/trainer/run/loader_set.h"

namespace levin {

namespace {

int64_t steps_of_batches(const Run& run, int64_t epoch, int64_t batches) {
  const AccumulationSchedule* schedule = accumulation_schedule(run);
  return windows_in(batches, schedule != nullptr ? schedule->factor(epoch) : run.fit.planned_accumulation);
}

int64_t steps_of_epochs(const Run& run, int64_t first, int64_t end) {
  const int64_t batches = num_training_batches(run.fit);
  if (first >= end) return 0;
  if (accumulation_schedule(run) == nullptr) return (end - first) * steps_of_batches(run, first, batches);
  int64_t steps = 0;
  for (int64_t epoch = first; epoch < end && steps < run.plan.max_steps; ++epoch) {
    steps += steps_of_batches(run, epoch, batches);
  }
  return steps;
}

// Steps that follow in the epoch of a position.
int64_t steps_left_in_epoch(const Run& run, const FitPosition& at) {
  if (!at.in_epoch || at.epoch_ends) return 0;
  const int64_t left = num_training_batches(run.fit) - at.next_batch - at.window_left;
  return (at.window_left > 0 ? 1 : 0) + (left > 0 ? steps_of_batches(run, at.epochs, left) : 0);
}

// The first epoch that is not a part of where the fit continues.
int64_t first_whole_epoch(const FitPosition& start) {
  return start.epochs + (start.in_epoch ? 1 : 0);
}

int64_t steps_of_first_epoch(const Run& run) {
  const FitPosition& start = run.fit.start;
  return start.in_epoch ? start.steps_in_epoch + steps_left_in_epoch(run, start) : 0;
}

bool knows_batches(const Run& run) {
  return !run.fit.train.num_batches.empty() && num_training_batches(run.fit) != kUnlimited;
}

// Calls visit(epochs, steps) for `epochs` epochs with `all` steps: groups of epochs with the same number of steps.
template <class Visit>
void visit_past(const Run& run, int64_t epochs, int64_t all, Visit visit) {
  if (epochs == 0) return;
  if (knows_batches(run) && accumulation_schedule(run) != nullptr && steps_of_epochs(run, 0, epochs) == all) {
    for (int64_t epoch = 0; epoch < epochs; ++epoch) visit(1, steps_of_epochs(run, epoch, epoch + 1));
    return;
  }
  visit(epochs - all % epochs, all / epochs);
  visit(all % epochs, all / epochs + 1);
}

// Visits all epochs of a fit of `steps` steps.
template <class Visit>
void visit_epochs(const Run& run, int64_t steps, Visit visit) {
  const FitPosition& start = run.fit.start;
  visit_past(run, start.epochs, start.steps - start.steps_in_epoch, visit);
  int64_t left = steps - (start.steps - start.steps_in_epoch);
  if (start.in_epoch && left > 0) {
    const int64_t first = std::min(left, steps_of_first_epoch(run));
    visit(1, first);
    left -= first;
  }
  for (int64_t epoch = first_whole_epoch(start); left > 0; ++epoch) {
    const int64_t one = std::min(left, steps_of_epochs(run, epoch, epoch + 1));
    const int64_t same = accumulation_schedule(run) == nullptr ? left / one : 1;
    visit(same, one);
    left -= same * one;
  }
}

// Counts the moves of a schedule in such groups of epochs.
struct Moves {
  Interval interval;
  int64_t every;
  int64_t epochs = 0;
  int64_t steps = 0;

  void operator()(int64_t count, int64_t each) {
    epochs += count;
    steps += count * (each / every);
  }
  [[nodiscard]] int64_t all() const { return interval == Interval::step ? steps : epochs / every; }
};

}  // namespace

FitPosition saved_position(const State& progress) {
  FitPosition at;
  at.epochs = progress.get<int64_t>("epochs");
  at.in_epoch = progress.get<bool>("in_epoch");
  at.next_batch = progress.get<int64_t>("next_batch");
  const auto seen = progress.get<int64_t>("window_seen");
  if (seen > 0) at.window_left = std::max<int64_t>(1, progress.get<int64_t>("window_size") - seen);
  at.epoch_ends = progress.get<bool>("epoch_cut") || (progress.has("pass_ended") && progress.get<bool>("pass_ended"));
  const bool planned = progress.has("planned_steps");  // not in checkpoints of an older Levin
  at.steps = planned ? progress.get<int64_t>("planned_steps")
                     : progress.get<int64_t>("global_step") + progress.get<int64_t>("skipped_steps");
  if (at.in_epoch) at.steps_in_epoch = progress.get<int64_t>(planned ? "planned_steps_in_epoch" : "steps_in_epoch");
  return at;
}

FitPosition planned_position(const Run& run, const State& progress) {
  FitPosition at = saved_position(progress);
  const FitPosition& start = run.fit.start;
  if (!knows_batches(run)) return at;
  const bool is_first = start.in_epoch && at.epochs == start.epochs;
  const int64_t whole = is_first ? steps_of_first_epoch(run) : steps_of_epochs(run, at.epochs, at.epochs + 1);
  at.steps_in_epoch = at.in_epoch ? whole - steps_left_in_epoch(run, at) : 0;
  at.steps = start.steps - start.steps_in_epoch + at.steps_in_epoch;
  if (at.epochs > start.epochs) {
    at.steps += steps_of_first_epoch(run) + steps_of_epochs(run, first_whole_epoch(start), at.epochs);
  }
  return at;
}

int64_t estimated_stepping_batches(Run& run) {
  if (run.fit.train.num_batches.empty()) {
    if (run.entry.stage != Stage::fit) return 0;
    if (!run.entry.running) {
      throw Error(
          "Trainer::estimated_stepping_batches: the last fit failed before its training loader was known. Call it in a "
          "hook of a fit, such as configure_optimizers, or after a fit that has trained.");
    }
    load_train_loader(run);
  }
  const RunPlan& plan = run.plan;
  if (num_training_batches(run.fit) == kUnlimited || plan.max_epochs == kUnlimited) return plan.max_steps;
  const FitPosition& start = run.fit.start;
  const int64_t behind = start.steps - start.steps_in_epoch + steps_of_first_epoch(run);
  return std::min(plan.max_steps, behind + steps_of_epochs(run, first_whole_epoch(start), plan.max_epochs));
}

int64_t moves_of_fit(Run& run, Interval interval, int64_t every) {
  const int64_t steps = estimated_stepping_batches(run);
  if (!knows_batches(run)) {
    const int64_t count = interval == Interval::step ? steps : run.plan.max_epochs;
    return count == kUnlimited ? kUnlimited : count / every;
  }
  if (steps == kUnlimited) return kUnlimited;
  Moves moves{interval, every};
  visit_epochs(run, steps, [&](int64_t count, int64_t each) { moves(count, each); });
  return moves.all();
}

int64_t moves_so_far(const Run& run, Interval interval, int64_t every) {
  const Epoch& epoch = run.fit.epoch;
  Moves moves{interval, every};
  const auto add = [&](int64_t count, int64_t each) { moves(count, each); };
  const int64_t before = epoch.running ? epoch.first_step : run.progress.global_step;
  visit_past(run, run.progress.epoch, before, add);
  moves.steps += (run.progress.global_step - before) / every;
  const bool is_over = knows_batches(run) && epoch.next_batch >= num_training_batches(run.fit);
  if (epoch.running && (epoch.pass_ended || is_over)) ++moves.epochs;
  return moves.all();
}

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
  const bool stepped = !run.fit.window_is_open() && run.progress.window_stepped;
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
