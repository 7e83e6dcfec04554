// Trial training steps: for callbacks that search for a batch size or a learning rate before a fit.
//
//   TrialRuns trials(trainer, "BatchSizeFinder");
//   if (trials.try_batch_size(64, 3) == TrialRuns::Outcome::fits) …
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace levin {

class Trainer;
class TrialStream;

/// Training steps whose effects are undone. The destructor restores the run bitwise: weights and buffers, gradients,
/// optimizers, random numbers, the loss scale, metric objects, logged metrics, counters and the loader's batch size.
/// During its lifetime no callback is called, nothing is logged, and losses that are not finite are ignored. If
/// restoring fails, the fit throws the exception before it trains.
class TrialRuns {
 public:
  /// For on_fit_start, with one rank. Throws ConfigError, beginning with `who`, if called elsewhere; with several
  /// ranks, because one that runs out of memory would leave the others waiting; without batches; and, at the latest
  /// when a trial begins, if configure_optimizers returns the same optimizer each time.
  TrialRuns(Trainer& trainer, std::string who);
  ~TrialRuns();
  TrialRuns(const TrialRuns&) = delete;
  TrialRuns& operator=(const TrialRuns&) = delete;

  /// How a trial of a batch size ended.
  enum class Outcome { fits, out_of_memory, larger_than_data };

  /// Returns the training loader's own batch size. Throws ConfigError if it has none, or if it cannot be changed.
  [[nodiscard]] int64_t batch_size() const;

  /// Makes `steps` updates (>= 1), each with one batch of this many samples, from the initial state of the fit.
  /// Rethrows errors other than running out of memory.
  [[nodiscard]] Outcome try_batch_size(int64_t samples, int64_t steps);

  /// Returns the configured learning rate of the first parameter group.
  [[nodiscard]] double learning_rate() const;

  /// Makes up to `steps` updates. `lrs(k)` is the first group's learning rate in update k = 0, 1, …, `steps` - 1; the
  /// other groups keep their ratio to it. `seen(k, loss)` is called with the mean loss of the window, computed before
  /// the update; returning false ends the trial. Starts from the initial state of the fit; the data are repeated as
  /// often as necessary.
  void try_learning_rates(int64_t steps, const std::function<double(int64_t)>& lrs,
                          const std::function<bool(int64_t, double)>& seen);

  /// Makes this fit use batches of `found` samples instead of `configured`. Creates the loader again, and also the
  /// optimizers, because schedules may depend on its length.
  static void keep_batch_size(Trainer& trainer, int64_t found, int64_t configured);

  /// Multiplies this fit's learning rates by `factor`; the optimizers are created again.
  static void keep_learning_rate(Trainer& trainer, double factor);

 private:
  struct SavedRun;
  void begin_trial();
  double run_step(TrialStream& stream, int64_t accumulate);

  std::string who_;
  std::shared_ptr<SavedRun> kept_;
};

}  // namespace levin
