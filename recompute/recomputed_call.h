// Makes a module, or consecutive blocks of a chain, a segment: an action of core/module_call.h.
#pragma once

#include <atomic>
#include <memory>

#include "levin/core/module_call.h"
#include "levin/recompute/segment.h"

namespace levin {

class RecomputedCall final : public CallAction {
 public:
  /// `buffers`: of the module; see SegmentScope.
  RecomputedCall(SegmentOptions options, TensorList buffers);

  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPlace place) override;

  /// Number of forward passes run as segments, and of recomputations.
  [[nodiscard]] int64_t calls() const { return counts_->calls; }
  [[nodiscard]] int64_t recomputed() const { return counts_->recomputed; }

  /// The same for a copy of the module, with shared counters.
  [[nodiscard]] std::shared_ptr<RecomputedCall> for_copy(TensorList buffers) const;

 private:
  struct Counts {
    std::atomic<int64_t> calls = 0;
    std::atomic<int64_t> recomputed = 0;
  };

  SegmentOptions options_;
  TensorList buffers_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace levin
