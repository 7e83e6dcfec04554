// Where a run computes and how its ranks agree. A world of one is an ordinary strategy whose collectives are
// identities, so that loops never ask how many ranks there are.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "levin/strategies/world.h"

namespace levin {

enum class ReduceOp { mean, sum, min, max };

/// What ranks tell each other beside their gradients.
enum class RankNote : uint8_t { nonfinite_loss, stop, cut_epoch, signal, save_file };
inline constexpr int64_t kRankNotes = 5;

/// What a strategy keeps equal on all ranks, by name.
struct ModuleTensors {
  std::vector<std::pair<std::string, at::Tensor>> parameters = {};
  std::vector<std::pair<std::string, at::Tensor>> buffers = {};
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  static const char* registry_name() { return "strategy"; }

  [[nodiscard]] virtual std::string name() const = 0;
  /// The device that this rank's module and batches live on.
  [[nodiscard]] virtual at::Device device() const = 0;
  [[nodiscard]] virtual World world() const { return {}; }
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t world_size() const = 0;

  /// Whether it wants a process of its own for every device: the trainer starts them and then calls join().
  [[nodiscard]] virtual bool is_distributed() const { return false; }
  /// Meets the other ranks. Once, before anything else; every rank.
  virtual void join(const World& /*world*/) {}

  /// Gives all ranks rank 0's weights, and makes ready to train them if `training`. After the weights are loaded and
  /// on the device; every rank.
  virtual void set_up(const ModuleTensors& /*module*/, bool /*training*/) {}
  /// Forgets the module.
  virtual void tear_down() {}
  /// Before each training_step. `sync`: its gradients will be reduced. Every rank.
  virtual void before_forward(bool /*sync*/) {}

  /// Adds the gradients of `loss` to the parameters. `sync`: they are also made equal on all ranks; false inside an
  /// accumulation window. Every rank.
  virtual void backward(const at::Tensor& loss, bool sync) = 0;

  /// A backward with `sync` of a rank that has no loss in this batch: its gradients are zeros.
  virtual void backward_without_loss() {}
  /// Tells all ranks, with the next backward that has `sync`, at the cost of no message. No wait.
  virtual void note(RankNote /*what*/) {}
  /// Whether any rank noted it for the last backward with `sync`; the same on all ranks.
  [[nodiscard]] virtual bool heard(RankNote /*what*/) const { return false; }

  /// Reduces over all ranks; every rank gets the result. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor reduce(const at::Tensor& value, ReduceOp op) = 0;

  /// True on every rank if it is true on any. Blocks until all arrive.
  [[nodiscard]] virtual bool any(bool value) = 0;

  virtual void barrier() = 0;

  /// (world_size, …): the CPU tensor of every rank, rank by rank; same shape and type on all. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor gather(const at::Tensor& value) { return value.unsqueeze(0); }
  /// Every rank's text, rank by rank. Blocks until all arrive.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) { return {text}; }
  /// Rank 0's text. Blocks until all arrive.
  [[nodiscard]] virtual std::string broadcast(const std::string& text) { return text; }
};

}  // namespace levin
