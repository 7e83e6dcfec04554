#include "levin/metrics/text_batch.h"

#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin::metrics {

void check_references(const std::string& metric, size_t preds, const std::vector<std::vector<std::string>>& references,
                      bool only_one) {
  if (preds != references.size()) {
    throw Error(metric + ": " + count_of(static_cast<int64_t>(preds), "prediction") + " for references of " +
                count_of(static_cast<int64_t>(references.size()), "prediction") +
                ". Give a list of references for each.");
  }
  for (size_t i = 0; i < references.size(); ++i) {
    if (references[i].empty()) {
      throw Error(metric + ": prediction " + std::to_string(i) + " has no reference. Give it at least one.");
    }
    if (only_one && references[i].size() > 1) {
      throw Error(metric + ": prediction " + std::to_string(i) + " has " + std::to_string(references[i].size()) +
                  " references. Give it one.");
    }
  }
}

}  // namespace levin::metrics
