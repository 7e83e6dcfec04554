// Decides what a sweep does next. A decision is a function of the options and of the trials so far, and of nothing
// else, so that an interrupted sweep decides like one that was not.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "levin/cli/sweep/sweep_options.h"
#include "levin/cli/sweep/sweep_store.h"

namespace levin {

// --- Sobol's sequence: points that fill a cube more evenly than random ones.

/// The coordinate of point `index` (from 0, whose point is all zeros) in `dimension` (from 0), in [0, 1), in the order
/// of Antonov and Saleev. `shift`: the bits that flip (a digital shift keeps the points evenly distributed).
[[nodiscard]] double sobol(uint32_t index, int dimension, uint32_t shift = 0);

/// A decision of a searcher.
struct SearchStep {
  enum class Kind {
    begin,      // a new trial
    continue_,  // a paused one, up to a higher rung
    wait,       // for a running one
    finished
  };
  Kind kind = Kind::wait;
  Parameters parameters = {};  // of a new trial
  int64_t trial = 0;           // that continues
  int64_t target = 0;          // resource that it runs to; 0: to its end
  int64_t bracket = 0;         // of a new trial
};

/// A search method. It has no state: equal trials give equal decisions.
class Searcher {
 public:
  virtual ~Searcher() = default;

  /// The next step with a free slot; `trials` in the order of their ids.
  [[nodiscard]] virtual SearchStep next(const std::vector<Trial>& trials) const = 0;

  /// How many trials there will be in total.
  [[nodiscard]] virtual int64_t total() const = 0;
};

/// The parameters of a trial, which depend on method, seed and the trial's number alone.
[[nodiscard]] Parameters parameters_of(const SweepOptions& options, const Space& space, int64_t trial);

/// How many points a grid has; at most 2^62.
[[nodiscard]] int64_t grid_size(const Space& space);

// --- Successive halving: every trial gets a little, and one in `reduction_factor` continues to the next rung.

/// min_resource, times the factor, …, max_resource.
[[nodiscard]] std::vector<int64_t> rungs_between(int64_t min_resource, int64_t factor, int64_t max_resource);

/// Asynchronous successive halving (Li et al., "A system for massively parallel hyperparameter tuning", 2020): whenever
/// a slot is free, a trial among the best 1/factor of a rung continues, the highest rung first; else a new trial
/// starts. Which trials continue depends on the order in which results arrive, which is always the same with one slot.
class Asha final : public Searcher {
 public:
  Asha(SweepOptions options, Space space, int64_t max_resource);

  [[nodiscard]] SearchStep next(const std::vector<Trial>& trials) const override;
  [[nodiscard]] int64_t total() const override;

 private:
  SweepOptions options_;
  Space space_;
  std::vector<int64_t> rungs_;
};

/// Hyperband (Li et al., 2018): brackets of successive halving, from many trials that begin with little to few that get
/// all. A rung is decided when all of its trials have ended, so the order of their results does not matter.
class Hyperband final : public Searcher {
 public:
  struct Bracket {
    std::vector<int64_t> resources = {};  // of its rungs
    std::vector<int64_t> trials = {};     // in each rung
    int64_t first = 0;                    // number of its first trial
  };

  Hyperband(SweepOptions options, Space space, int64_t max_resource);

  [[nodiscard]] SearchStep next(const std::vector<Trial>& trials) const override;
  [[nodiscard]] int64_t total() const override;
  [[nodiscard]] const std::vector<Bracket>& brackets() const { return brackets_; }

 private:
  [[nodiscard]] SearchStep next_in(const Bracket& bracket, const std::vector<Trial>& trials) const;

  SweepOptions options_;
  Space space_;
  std::vector<Bracket> brackets_;
};

// --- The searcher of each method.

/// `max_resource`: of asha and hyperband.
[[nodiscard]] std::unique_ptr<Searcher> make_searcher(const SweepOptions& options, const Space& space,
                                                      int64_t max_resource);

}  // namespace levin
