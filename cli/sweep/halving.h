// Successive halving: every trial gets a little, and one in `reduction_factor` goes on to the next rung.
#pragma once

#include <vector>

#include "levin/cli/sweep/searcher.h"

namespace levin {

/// min_resource, times the factor, …, max_resource.
[[nodiscard]] std::vector<int64_t> rungs_between(int64_t min_resource, int64_t factor, int64_t max_resource);

/// Asynchronous successive halving (Li et al., "A system for massively parallel hyperparameter tuning", 2020): whenever
/// a slot is free, a trial among the best 1/factor of a rung goes on, the highest rung first; else a new trial begins.
/// Which trials go on depends on the order in which results come in: with one slot that is always the same.
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

}  // namespace levin
