// Averages gradients over ranks, unit by unit, while backward still computes others, and leaves each rank the whole
// (stage 1 of ZeRO) or its part (stages 2 and 3), see FlatUnit. Autograd's post-accumulate hooks report finished
// gradients.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "levin/strategies/gradient_sync.h"
#include "levin/strategies/process/flat_unit.h"
#include "levin/strategies/process/parallel_strategy.h"

namespace c10d {
class Work;
}

namespace levin {

class ShardReducer {
 public:
  using Units = std::vector<std::unique_ptr<FlatUnit>>;
  struct Options {
    int64_t ranks = 1;
    bool keeps_whole = false;                       // stage 1
    bool takes_every_backward = false;              // stage 3: also inside an accumulation window
    std::optional<at::ScalarType> dtype = {};       // for the reduction; unset: the gradients' own
    std::function<void(size_t)> unit_is_done = {};  // all its gradients have been computed
    std::function<void()> next_is_sent = {};        // the next unit, in the order of sending
  };

  /// `units` must outlive it.
  ShardReducer(Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group, Options options);
  ~ShardReducer();
  ShardReducer(const ShardReducer&) = delete;
  ShardReducer& operator=(const ShardReducer&) = delete;

  /// Whether gradients of parameters are parts, to which an ordinary backward could not add.
  [[nodiscard]] bool has_shards() const;
  /// Called before a backward whose gradients are to be reduced, together with the gradients that the parameters
  /// already have.
  void begin();
  /// Between the two, on a rank without a loss: sends the first `count` units in the order of sending.
  void send_first(size_t count);
  /// Called after it: makes the parameters' gradients the means over ranks. `flags`, if defined: (kRankFlags) of this
  /// rank; returns their sums over ranks, on the units' device. Blocks until all ranks call it; with NCCL only if some
  /// parameter got no gradient on this rank, because others decide then whether it has one.
  [[nodiscard]] at::Tensor end(const at::Tensor& flags);

 private:
  struct Progress;
  struct Message;

  void on_gradient(size_t unit, size_t entry);
  void keep_earlier(size_t unit);
  void send_complete();
  void send(size_t unit);
  void receive_oldest();
  [[nodiscard]] at::Tensor packed(size_t unit);
  [[nodiscard]] at::Tensor start_agreement(const at::Tensor& flags, c10::intrusive_ptr<c10d::Work>& work);
  void prepare_used(at::Device device, at::ScalarType type);
  [[nodiscard]] bool knows_used() const;
  void read_used(const at::Tensor& sums);
  void hand_out(size_t unit, bool all);

  Units& units_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Options options_;
  std::vector<Progress> progress_;  // by unit
  std::vector<Message> messages_;   // in flight, oldest first
  std::vector<bool> sent_used_;     // by parameter of all units: used, as last sent
  at::Tensor sent_used_numbers_;    // the same as numbers, on the units' device
  bool active_ = false;
  size_t next_ = 0;  // in the order of sending, which is the same on all ranks: last unit first
};

}  // namespace levin
