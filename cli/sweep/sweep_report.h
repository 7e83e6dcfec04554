// One HTML page about a sweep: self-contained, without JavaScript, for desktop and phone, dark and light.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/cli/sweep/sweep_options.h"
#include "levin/cli/sweep/sweep_store.h"

namespace levin {

// --- How much each key of a sweep matters for its metric: the absolute rank correlation of Spearman between the key's
// values and the metric; for a choice of strings, the correlation ratio of the metric's ranks (eta). From 0 to 1.

/// Ranks from 1; equal values share the mean of theirs.
[[nodiscard]] std::vector<double> ranks_of(const std::vector<double>& values);

/// Of two lists of the same length; 0 if one of them is constant.
[[nodiscard]] double spearman(const std::vector<double>& a, const std::vector<double>& b);

/// For each key: its importance among trials that got equally far; empty with fewer than three of them.
[[nodiscard]] std::vector<std::pair<std::string, double>> importances(const Space& space,
                                                                      const std::vector<Trial>& trials);

/// The page's text.
[[nodiscard]] std::string sweep_html(const SweepStore& store, const std::vector<Trial>& trials);

}  // namespace levin
