// How a strategy's steps are recorded and replayed.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/util/FunctionRef.h>

#include <memory>

#include "levin/strategies/strategy_part.h"

namespace levin {

class StepRecorder;

/// How steps are recorded and replayed: by default they are not recorded.
class StrategyRecorder : public StrategyPart {
 public:
  /// Returns a recorder that captures steps for the device to replay; null: steps cannot be captured. Throws
  /// ConfigError if an option of the strategy rules it out. Every rank calls it.
  [[nodiscard]] virtual std::shared_ptr<StepRecorder> make_recorder() { return nullptr; }

  /// GradientSync::backward() with flags as numbers, in memory: `own` are this rank's (kRankFlags). With `sync` returns
  /// the flags of all ranks, above 0 where a rank has set the flag; without it, an undefined tensor. In a step that is
  /// recorded each replay reads and writes that memory. By default for one rank. Every rank calls it.
  [[nodiscard]] virtual at::Tensor backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own);
  /// Returns whether backward_recorded() also takes and returns flags on the device, without waiting for it; an
  /// undefined loss then means that this rank has none, as in backward_without_loss().
  [[nodiscard]] virtual bool has_flags_on_device() const { return false; }

  /// Runs `replay`, which replays a step that was recorded with backward_recorded(). Its communication throws the same
  /// errors as GradientSync::backward().
  virtual void run_replay(c10::function_ref<void()> replay) { replay(); }
  /// Called on the stream that make_recorder()'s recorder captures, before the first step. Returns whether all steps,
  /// eager ones included, must run on that stream from then on. Every rank calls it.
  [[nodiscard]] virtual bool use_recorder_stream() { return false; }
  /// Returns whether ranks must record a step together, and replay it all or none: NCCL requires it of captured
  /// collectives. Otherwise a rank that replays and a rank that runs its step communicate in the same way.
  [[nodiscard]] virtual bool replays_together() const { return false; }
  /// Called by Strategy::tear_down(), on every rank.
  virtual void tear_down() {}
};

/// A recorder of one device's steps: on a CPU as tapes of operators, elsewhere with the device's accelerator.
class DeviceStepRecorder : public StrategyRecorder {
 public:
  [[nodiscard]] std::shared_ptr<StepRecorder> make_recorder() override;
};

}  // namespace levin
