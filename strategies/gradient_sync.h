// How a step's gradients are computed and synchronized across ranks, and the flags that ranks exchange with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/state.h"
#include "levin/strategies/strategy_part.h"

namespace levin {

/// The flags that ranks exchange. nonfinite_loss: a loss is inf or nan; stop: end the fit; cut_epoch: end the epoch
/// early; signal: a signal or a file asks the run to end; save_file: a file asks for a checkpoint.
enum class RankFlag : uint8_t { nonfinite_loss, stop, cut_epoch, signal, save_file };
inline constexpr size_t kRankFlags = 5;

/// A set of flags that ranks exchange with their gradients: every rank receives a flag if any rank has set it.
class RankFlags {
 public:
  void add(RankFlag flag) { set_[static_cast<size_t>(flag)] = true; }
  [[nodiscard]] bool has(RankFlag flag) const { return set_[static_cast<size_t>(flag)]; }
  /// Removes the flag; returns whether it was set.
  [[nodiscard]] bool take(RankFlag flag) { return std::exchange(set_[static_cast<size_t>(flag)], false); }
  [[nodiscard]] bool empty() const { return set_ == std::array<bool, kRankFlags>{}; }
  RankFlags& operator|=(const RankFlags& others) {
    for (size_t k = 0; k < kRankFlags; ++k) set_[k] = set_[k] || others.set_[k];
    return *this;
  }

  /// Returns the flags as numbers that can be summed over ranks; from() converts sums back. A sum above 0 means that
  /// some rank has set the flag.
  [[nodiscard]] std::array<double, kRankFlags> numbers() const {
    std::array<double, kRankFlags> numbers = {};
    for (size_t k = 0; k < kRankFlags; ++k) numbers[k] = set_[k] ? 1 : 0;
    return numbers;
  }
  [[nodiscard]] static RankFlags from(const std::array<double, kRankFlags>& sums) {
    RankFlags flags;
    for (size_t k = 0; k < kRankFlags; ++k) flags.set_[k] = sums[k] > 0;
    return flags;
  }

 private:
  std::array<bool, kRankFlags> set_ = {};
};

/// Flags as a tensor of kRankFlags doubles on the CPU, and back from any type and device.
[[nodiscard]] at::Tensor flags_tensor(const RankFlags& flags);
[[nodiscard]] RankFlags flags_of(const at::Tensor& numbers);

/// The backward pass of a training loop, loss.backward(). The gradient that backward starts from, a 1 shaped like the
/// loss, is reused from step to step, because making it costs three operator calls, and a kernel on a GPU. Where steps
/// are recorded it is made in each step: a captured graph must own all memory that it reads, and recorded steps must
/// run the same operators.
///
/// Backward runs on the thread that calls it. LibTorch would have a GPU's part run on a thread of that GPU, which is
/// needed only for several GPUs at once: handing over and back costs two wake-ups of a thread in each step.
class LossGradient {
 public:
  /// Accumulates the gradients of `loss` (one element, any shape) in the leaves it was computed from, as
  /// loss.backward() does, and throws c10::Error as that does. Not thread-safe.
  void backward(const at::Tensor& loss);
  /// From now on the gradient that backward starts from is made in each step.
  void reuse_nothing() { reuses_ = false; }
  /// From now on each device's part of backward runs on a thread of its own, in parallel.
  void use_device_threads() { on_this_thread_ = false; }
  /// Replaces what backward() does from now on; empty: the above.
  void replace_by(std::function<void(const at::Tensor&)> own) { own_ = std::move(own); }

 private:
  void run(const at::Tensor& loss);
  [[nodiscard]] static bool fits(const at::Tensor& one, const at::Tensor& loss);
  /// Nothing else refers to its memory or has modified it.
  [[nodiscard]] bool untouched(const at::Tensor& one) const;

  std::function<void(const at::Tensor&)> own_ = {};
  bool reuses_ = true;
  bool on_this_thread_ = true;
  at::Tensor one_;
  uint32_t version_ = 0;
};

/// The tensors that a strategy keeps equal on all ranks, by name.
struct ModuleTensors {
  std::vector<std::pair<std::string, at::Tensor>> parameters = {};
  std::vector<std::pair<std::string, at::Tensor>> buffers = {};
};

/// The gradients of a step: by default a plain backward pass whose gradients stay on this rank. An override that
/// communicates throws RankError if another rank has ended or does not answer.
class GradientSync : public StrategyPart {
 public:
  /// Returns the object that computes this rank's own gradients of a loss.
  [[nodiscard]] LossGradient& local() { return local_; }
  /// Sets the function that computes the gradients of a loss from now on; empty: loss.backward().
  void use_backward(std::function<void(const at::Tensor&)> own) { local_.replace_by(std::move(own)); }

  /// Called by Strategy::set_up(), when all ranks have the same weights, and by Strategy::tear_down(), on every rank.
  virtual void set_up(const ModuleTensors& /*module*/, bool /*training*/) {}
  virtual void tear_down() {}

  /// Returns what decides the last bits of the next gradients besides weights and batches, for checkpoints: the order
  /// in which they are summed. Called between steps, on every rank; sends nothing.
  [[nodiscard]] virtual State state_dict() const { return {}; }
  /// Continues with the state of state_dict(), on every rank alike. Called after set_up(), before the first step. What
  /// is not of this module is ignored.
  virtual void load_state_dict(const State& /*saved*/) {}

  /// Called before each training_step. `sync`: its gradients will be reduced. Every rank calls it.
  virtual void before_forward(bool /*sync*/) {}

  /// Accumulates the gradients of `loss` in the parameters. `sync`: they are also reduced across ranks; false inside an
  /// accumulation window. With `sync` this rank's flags are sent along, without a further message, and the flags of all
  /// ranks are returned; without it they stay with the caller, and no flags are returned. Every rank calls it, or
  /// backward_without_loss().
  [[nodiscard]] virtual RankFlags backward(const at::Tensor& loss, bool sync, const RankFlags& own);
  /// Runs the backward pass of a rank that has no loss in this batch: its gradients are zeros. `sync` and `own` as
  /// above.
  [[nodiscard]] virtual RankFlags backward_without_loss(bool sync, const RankFlags& own) {
    return sync ? own : RankFlags();
  }

  /// Returns the number of micro-batches, each with its own forward and backward pass, that it splits a training batch
  /// into.
  [[nodiscard]] virtual int64_t micro_batches() const { return 1; }
  /// Accumulates the gradients of loss(0) to loss(count - 1), in an order that suits the devices. `loss` runs the
  /// module.
  virtual void run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss);

 private:
  LossGradient local_;
};

}  // namespace levin
