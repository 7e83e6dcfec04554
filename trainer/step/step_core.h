// The parts and the state of a StepEngine, for the files of this folder. A function takes a StepCore if it is a part of
// a step; what it changes is named in its comment.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "levin/precision/precision.h"
#include "levin/profilers/profiler.h"
#include "levin/profilers/time_split.h"
#include "levin/strategies/gradient_sync.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/step/step_context.h"
#include "levin/trainer/step/step_hooks.h"
#include "levin/trainer/step/step_parts.h"
#include "levin/trainer/step/window.h"
#include "levin/trainer/step_output.h"

namespace levin {

class MicroBatching;
class StepGraph;
class UnregisteredLeaves;
class WindowVerdict;
struct StepNotes;

/// The state of an engine: its optimizers, its window, the running batch, and the flags to send and to act on.
struct StepCore : StepParts {
  explicit StepCore(const StepParts& parts) : StepParts(parts) {}
  StepCore(const StepCore&) = delete;
  StepCore& operator=(const StepCore&) = delete;

  std::unique_ptr<StepContext> live = nullptr;  // of steps that run by themselves
  StepContext* context = nullptr;               // of the running step; never null in an engine

  std::vector<LightningOptimizer> optimizers = {};
  std::shared_ptr<WindowVerdict> verdict = nullptr;         // never null in an engine
  std::shared_ptr<MicroBatching> micro_batching = nullptr;  // null: a batch is one pass
  std::shared_ptr<StepGraph> step_graph = nullptr;          // with record_steps; null: every step runs eagerly

  StepPlace place = {};  // of the running batch
  Window window = {};
  LossWeights loss_weights = {};
  StepNotes* recording = nullptr;  // while a step is recorded: what the host must do after each replay
  RankFlags to_send = {};          // with several ranks: flags about losses, sent with the next reduced gradients
  RankFlags received = {};         // flags about losses from any rank, until they are acted on
  bool skip_batch = false;         // the running batch is skipped
  // In manual optimization with a loss scaler: whether a scaled gradient of the running batch overflowed; unset: no
  // optimizer was stepped.
  std::optional<bool> batch_overflowed = std::nullopt;
  bool module_is_gone = false;  // it was destroyed

  bool looked_at_loss_shapes = false;
  bool looked_at_leaves = false;                         // whether all that the loss depends on is registered
  bool found_leaves = false;                             // some of it is not
  std::shared_ptr<UnregisteredLeaves> leaves = nullptr;  // while that is found out

  [[nodiscard]] bool has_peers() const { return strategy.ranks().world_size() > 1; }
  /// Returns this rank's flags, which are sent with the gradients that ranks reduce (`sync`); none without `sync`.
  [[nodiscard]] RankFlags flags_to_send(bool sync) {
    if (!sync) return {};
    RankFlags flags = hooks.flags_to_send();
    flags |= std::exchange(to_send, RankFlags());
    return flags;
  }
  /// Takes the flags of all ranks. The flag about losses stays until it is acted on.
  void receive(RankFlags flags) {
    if (flags.take(RankFlag::nonfinite_loss)) received.add(RankFlag::nonfinite_loss);
    hooks.receive(flags);
  }
};

}  // namespace levin
