// Training steps that are only tried: what callbacks that look for a batch size or a learning rate run before a fit.
//
//   TrialRuns trials(trainer, "BatchSizeFinder");
//   if (trials.try_batch_size(64, 3) == TrialRuns::Outcome::fits) …
//
// When it goes, the run is bit for bit as it was: weights and buffers, gradients, optimizers, random numbers, the loss
// scale, metrics, counters and the loader's batch size. Meanwhile no callback is called, nothing is logged, and a loss
// that is not finite is nobody's concern.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace levin {

class Trainer;
class TrialStream;

class TrialRuns {
 public:
  /// In on_fit_start, with one rank. Throws ConfigError, beginning with `who`, elsewhere; with several ranks, where one
  /// that runs out of memory would leave the others waiting; and where configure_optimizers gives the same optimizer
  /// each time.
  TrialRuns(Trainer& trainer, std::string who);
  ~TrialRuns();
  TrialRuns(const TrialRuns&) = delete;
  TrialRuns& operator=(const TrialRuns&) = delete;

  enum class Outcome { fits, out_of_memory, larger_than_data };

  /// The training loader's own batch size. Throws ConfigError if it does not tell, or cannot change it.
  [[nodiscard]] int64_t batch_size() const;

  /// `steps` updates (>= 1), each of one batch of so many samples, from the state that the fit begins with.
  [[nodiscard]] Outcome try_batch_size(int64_t samples, int64_t steps);

  /// The first parameter group's learning rate as configured.
  [[nodiscard]] double learning_rate() const;

  /// `lrs(k)` is the first group's learning rate in update k = 0, 1, …, `steps` - 1; the others keep their ratio to it.
  /// `seen(k, loss)` is told the mean loss of its window, computed before the update; false ends the trial. From the
  /// state that the fit begins with; passes over the data follow one another.
  void try_learning_rates(int64_t steps, const std::function<double(int64_t)>& lrs,
                          const std::function<bool(int64_t, double)>& seen);

  /// From here on this fit uses batches of `found` samples, where the loader was made for `configured`: the loader is
  /// asked for anew, and so are the optimizers, whose schedules may depend on its length.
  static void keep_batch_size(Trainer& trainer, int64_t found, int64_t configured);

  /// This fit's learning rates are multiplied by `factor`; the optimizers are asked for anew.
  static void keep_learning_rate(Trainer& trainer, double factor);

 private:
  struct SavedRun;
  void begin_trial();
  double run_step(TrialStream& stream, int64_t accumulate);

  std::string who_;
  std::unique_ptr<SavedRun> kept_;
};

}  // namespace levin
