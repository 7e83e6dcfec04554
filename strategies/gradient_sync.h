// How a step's gradients are computed and synchronized across ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "levin/strategies/loss_gradient.h"
#include "levin/strategies/rank_notes.h"

namespace levin {

class GradientSync {
 public:
  virtual ~GradientSync() = default;

  /// Sets the function that computes the gradients of a loss from now on; empty: loss.backward().
  void use_backward(std::function<void(const at::Tensor&)> own) { gradient_.replace_by(std::move(own)); }

  /// Called before each training_step. `sync`: its gradients will be reduced. Every rank.
  virtual void before_forward(bool /*sync*/) {}

  /// Accumulates the gradients of `loss` in the parameters. `sync`: they are also reduced across ranks; false inside an
  /// accumulation window. With `sync` this rank's notes are sent along, without a further message, and the notes of all
  /// ranks are returned; without it they stay with the caller, and empty notes are returned. Every rank.
  [[nodiscard]] virtual RankNotes backward(const at::Tensor& loss, bool sync, const RankNotes& own) = 0;

  /// backward() with notes as numbers, in memory: `own` are this rank's (kRankNotes). With `sync` returns those of all
  /// ranks, above 0 where one has set the note; without it, an undefined tensor. In a step that is recorded each replay
  /// reads and writes that memory. Every rank.
  [[nodiscard]] virtual at::Tensor backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own);
  /// Whether backward_recorded() also takes and returns notes on the device, without waiting for it; then an undefined
  /// loss is that of a rank that has none, as in backward_without_loss().
  [[nodiscard]] virtual bool has_notes_on_device() const { return false; }
  /// Runs `replay`, which replays a step that was recorded with backward_recorded(); errors of its communication are
  /// those of backward().
  virtual void run_replay(c10::function_ref<void()> replay) { replay(); }
  /// Called on the stream that make_recorder()'s recorder captures, before the first step. Returns whether all steps
  /// must run on that stream from then on, also those that run as they are. Every rank.
  [[nodiscard]] virtual bool use_recorder_stream() { return false; }
  /// Whether ranks must record a step together, and replay it all or none: NCCL requires it of captured collectives.
  /// Otherwise a rank that replays and one that runs its step communicate alike.
  [[nodiscard]] virtual bool replays_together() const { return false; }

  /// The number of micro-batches, each with its own forward and backward pass, that it splits a training batch into.
  [[nodiscard]] virtual int64_t micro_batches() const { return 1; }
  /// Accumulates the gradients of loss(0) to loss(count - 1), in an order that suits the devices. `loss` runs the
  /// module.
  virtual void run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss);

  /// The backward pass of a rank that has no loss in this batch: its gradients are zeros. `sync` and `own` as above.
  [[nodiscard]] virtual RankNotes backward_without_loss(bool sync, const RankNotes& own) {
    return sync ? own : RankNotes();
  }

 protected:
  LossGradient gradient_;
};

/// Notes as the numbers that backward_recorded() takes and returns, and back.
[[nodiscard]] at::Tensor notes_tensor(const RankNotes& notes);
[[nodiscard]] RankNotes notes_of(const at::Tensor& numbers);

}  // namespace levin
