// Predictions and references of a batch of texts.
#pragma once

#include <string>
#include <vector>

namespace levin::metrics {

/// Throws Error naming `metric` if the counts differ or a prediction has no reference. `only_one`: or more than one.
void check_references(const std::string& metric, size_t preds, const std::vector<std::vector<std::string>>& references,
                      bool only_one = false);

}  // namespace levin::metrics
