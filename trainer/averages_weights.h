// The interface of callbacks that keep an average of the weights during training, such as WeightAveraging.
#pragma once

#include <cstdint>

#include "levin/trainer/callback.h"

namespace levin {

/// The base of callbacks that average the weights. The number of rows of such weights cannot change
/// (FabricOptimizer::select_rows).
class AveragesWeights {
 public:
  virtual ~AveragesWeights() = default;
  /// Returns the bytes of the average on the module's device; the memory planner adds them to a step's memory.
  [[nodiscard]] virtual int64_t held_bytes(const LightningModule& module) const = 0;

 protected:
  AveragesWeights() = default;
  AveragesWeights(const AveragesWeights&) = default;
  AveragesWeights& operator=(const AveragesWeights&) = default;
};

/// Returns the held_bytes() of a callback that averages the weights; 0 for others.
[[nodiscard]] inline int64_t held_bytes(const Callback& callback, const LightningModule& module) {
  const auto* averages = dynamic_cast<const AveragesWeights*>(&callback);
  return averages == nullptr ? 0 : averages->held_bytes(module);
}

}  // namespace levin
