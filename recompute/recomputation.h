// trainer.recompute: the named segments of a module are computed again in backward while a fit runs. Internal.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/recompute/segment.h"
#include "levin/recompute/segment_names.h"

namespace levin {

/// Makes a module, or consecutive blocks of a chain, a segment: an action of core/module_call.h.
class RecomputedCall final : public CallAction {
 public:
  /// `buffers`: of the module; see SegmentScope.
  RecomputedCall(SegmentOptions options, TensorList buffers);

  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition place) override;

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

/// During its lifetime, the segments of a module are recomputed: blocks of Sequentials, and submodules called through
/// levin::call and levin::call_chain. Evaluation does not change, because it computes no gradients.
class Recomputation {
 public:
  /// Throws ConfigError as named_segments does.
  Recomputation(torch::nn::Module& root, const RecomputeOptions& options);
  ~Recomputation();
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

  /// Applies the same to a copy of the module (a replica of strategy dp) with the same submodule names.
  void add_replica(torch::nn::Module& copy);

  /// Checks, after the first training step, which segments were called. Throws ConfigError if no call of any segment
  /// was seen, and logs a warning that names the segments that were not called.
  void check_called();

  /// How often segments were computed in training so far, and how often recomputed.
  [[nodiscard]] int64_t calls() const;
  [[nodiscard]] int64_t recomputed() const;

 private:
  struct Attached {
    NamedSegment segment;
    std::shared_ptr<RecomputedCall> action;
  };

  RecomputeOptions options_;
  std::vector<Attached> attached_;
  std::vector<Attached> replicas_;
  bool checked_ = false;
};

}  // namespace levin
