// Finds the batch size that fits into memory before a fit, and trains with it.
//
//   .callbacks = {levin::BatchSizeFinder({.mode = "binsearch"})}
//
// Sizes are tried in training steps whose effects are undone (trainer/trial_runs.h). A run that resumes from a
// checkpoint uses the size found then. Put it before callbacks that use optimizers or loaders: both are created again
// if the size is not the configured one. `levin tune` runs it alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/trial_runs.h"

namespace levin {

/// power: doubles until a size does not fit; binsearch: then bisects the interval between.
enum class BatchSizeSearch { power, binsearch };
template <>
struct EnumNames<BatchSizeSearch> {
  static constexpr EnumName<BatchSizeSearch> names[] = {{"power", BatchSizeSearch::power},
                                                        {"binsearch", BatchSizeSearch::binsearch}};
};

/// Options of BatchSizeFinder.
struct BatchSizeFinderOptions {
  EnumOption<BatchSizeSearch> mode = BatchSizeSearch::power;
  int64_t steps_per_trial = 3;
  int64_t init_val = 2;     // samples
  int64_t max_trials = 25;  // sizes
  double margin = 0.05;     // fraction of the size that binsearch finds
  int64_t max_val = 8192;   // samples

  template <class = void>
  static auto fields() {
    using O = BatchSizeFinderOptions;
    return levin::fields(
        field("mode", &O::mode, "power: double until out of memory; binsearch: then halve the interval between"),
        field("steps_per_trial", &O::steps_per_trial, "training steps per size").min(1),
        field("init_val", &O::init_val, "the first size to try, in samples").min(1),
        field("max_trials", &O::max_trials, "maximum number of sizes to try").min(1),
        field("margin", &O::margin, "fraction of the size found by binsearch that is left free").min(0.0).below(1.0),
        field("max_val", &O::max_val, "the largest size to try, in samples").min(1));
  }
};

/// A callback that finds the batch size of the training loader and sets it. Works on one rank; the hooks below name the
/// errors.
class BatchSizeFinder final : public Callback {
 public:
  using Options = BatchSizeFinderOptions;
  explicit BatchSizeFinder(Defaults = {}) : BatchSizeFinder(BatchSizeFinderOptions()) {}
  explicit BatchSizeFinder(BatchSizeFinderOptions options);

  /// Throws ConfigError for a stage that does not train, unless a fit came before it.
  void setup(Trainer& trainer, LightningModule&, Stage stage) override;
  /// Throws ConfigError if sizes cannot be tried: several ranks, micro_batch_size: auto, a loader without a batch
  /// size; and Error if one sample does not fit.
  void on_fit_start(Trainer& trainer, LightningModule&) override;

  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] std::string state_key() const override { return "BatchSizeFinder"; }

  /// Returns the batch size found; unset before the search.
  [[nodiscard]] std::optional<int64_t> found() const { return found_; }
  /// Returns the configured batch size; 0 before the search.
  [[nodiscard]] int64_t configured() const { return configured_; }

 private:
  struct Bounds {
    int64_t fits = 0;       // the largest that fits; 0: none yet
    int64_t too_large = 0;  // the smallest that does not fit; 0: none yet
    bool by_memory = false;
  };
  [[nodiscard]] int64_t search(TrialRuns& trials) const;
  [[nodiscard]] std::optional<int64_t> next_size(const Bounds& bounds, int64_t tried) const;
  [[nodiscard]] int64_t result(const Bounds& bounds) const;

  BatchSizeFinderOptions options_;
  std::optional<int64_t> found_;
  int64_t configured_ = 0;
};

}  // namespace levin
