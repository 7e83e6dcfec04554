// Where a run computes and how its ranks agree. A world of one is an ordinary strategy whose collectives are
// identities, so that loops never ask how many ranks there are.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/strategies/device_slot.h"
#include "levin/strategies/world.h"

namespace torch::nn {
class Module;
}

namespace levin {

class DeviceCopier;
class StepRecorder;

enum class ReduceOp { mean, sum, min, max };

/// What ranks tell each other beside their gradients.
enum class RankNote : uint8_t { nonfinite_loss, stop, cut_epoch, signal, save_file };
inline constexpr int64_t kRankNotes = 5;

/// What a strategy keeps equal on all ranks, by name.
struct ModuleTensors {
  std::vector<std::pair<std::string, at::Tensor>> parameters = {};
  std::vector<std::pair<std::string, at::Tensor>> buffers = {};
};

/// The stretch of a parameter, laid flat, that a rank updates where ranks share them out.
struct PartPlace {
  int64_t begin = 0;
  int64_t size = 0;
  std::vector<int64_t> shape = {};  // of the whole parameter
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  static const char* registry_name() { return "strategy"; }

  [[nodiscard]] virtual std::string name() const = 0;
  /// The device that this rank's module and batches live on.
  [[nodiscard]] virtual at::Device device() const = 0;
  /// Puts this rank on `device`; after join(), before anything else. Throws ConfigError if it cannot be there.
  virtual void use_device(at::Device device);
  /// What copies batches to the device one ahead; null: each is copied where it is needed.
  [[nodiscard]] virtual std::shared_ptr<DeviceCopier> make_copier() { return nullptr; }
  /// What records steps for the device to repeat; null: they cannot be recorded.
  [[nodiscard]] virtual std::shared_ptr<StepRecorder> make_recorder() { return nullptr; }

  [[nodiscard]] virtual World world() const { return {}; }
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t world_size() const = 0;

  /// Whether it wants a process of its own for every device: the trainer starts them and then calls join().
  [[nodiscard]] virtual bool is_distributed() const { return false; }
  /// Meets the other ranks. Once, before anything else; every rank.
  virtual void join(const World& /*world*/) {}

  /// Batch normalization by the statistics of all ranks' batches, from set_up() on. Before it; with one rank there is
  /// nothing to do.
  virtual void use_sync_batchnorm() {}

  /// Whether one process of it computes on several devices: the trainer then calls use_slots().
  [[nodiscard]] virtual bool takes_several_devices() const { return false; }
  /// The devices of this process, at least one. Once, before anything else.
  virtual void use_slots(std::vector<DeviceSlot> /*slots*/) {}
  /// Where replicas of the module compute shares of each batch; fewer than two: the module computes it whole.
  [[nodiscard]] virtual std::vector<DeviceSlot> replica_slots() const { return {}; }
  /// Whether what replicas return (predictions) comes together on device() first, or goes to the CPU from where it is.
  [[nodiscard]] virtual bool gathers_outputs() const { return true; }

  /// Moves the module to where it computes. After its layers are made, before its optimizers are; every rank.
  virtual void place(torch::nn::Module& module);

  /// Gives all ranks rank 0's weights, and makes ready to train them if `training`. After the weights are loaded and
  /// on the device; every rank.
  virtual void set_up(const ModuleTensors& /*module*/, bool /*training*/) {}
  /// Training has gone well to its end: the module has whole weights of its own again. Every rank.
  virtual void leave() {}
  /// Forgets the module.
  virtual void tear_down() {}
  /// Before each training_step. `sync`: its gradients will be reduced. Every rank.
  virtual void before_forward(bool /*sync*/) {}

  /// Adds the gradients of `loss` to the parameters. `sync`: they are also made equal on all ranks; false inside an
  /// accumulation window. Every rank.
  virtual void backward(const at::Tensor& loss, bool sync) = 0;

  /// Into how many parts, each with a forward and a backward pass of its own, it cuts the batch of one training step.
  [[nodiscard]] virtual int64_t micro_batches() const { return 1; }
  /// Adds the gradients of loss(0) to loss(count - 1), in the order that suits the devices. `loss` runs the module.
  virtual void run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss);

  /// A backward with `sync` of a rank that has no loss in this batch: its gradients are zeros.
  virtual void backward_without_loss() {}
  /// Tells all ranks, with the next backward that has `sync`, at the cost of no message. No wait.
  virtual void note(RankNote /*what*/) {}
  /// Whether any rank noted it for the last backward with `sync`; the same on all ranks.
  [[nodiscard]] virtual bool heard(RankNote /*what*/) const { return false; }

  /// Whether each rank updates, and keeps optimizers' state for, a part of the weights only.
  [[nodiscard]] virtual bool is_sharded() const { return false; }
  /// Whether a rank has only that part of the gradients too, once they are reduced: a norm is then over all ranks.
  [[nodiscard]] virtual bool has_sharded_gradients() const { return false; }
  /// Whether also forward and backward gather weights, so that no rank may leave out one that others run, and
  /// gradients are reduced in every backward.
  [[nodiscard]] virtual bool has_sharded_weights() const { return false; }
  /// Whether each rank writes its part to checkpoints.
  [[nodiscard]] virtual bool saves_shards() const { return false; }
  /// In a fit: from here to end_evaluation() all weights are whole on every rank, and reading them is no message,
  /// because ranks may have different numbers of batches. Every rank. Blocks until all arrive.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}
  /// From here to end_update() the module's parameters and their gradients are this rank's part of them, laid flat:
  /// what an optimizer updates. Of a parameter that it has no part of, no numbers and no gradient.
  virtual void begin_update() {}
  /// `changed`: the whole weights get what the ranks have updated. Every rank. Blocks until all arrive, if so.
  virtual void end_update(bool /*changed*/) {}
  /// Unset for tensors that are whole on every rank.
  [[nodiscard]] virtual std::optional<PartPlace> place_of(const at::Tensor& /*parameter*/) const {
    return std::nullopt;
  }
  /// This rank's part of a parameter that has a place: its own memory, flat.
  [[nodiscard]] virtual at::Tensor part_of(const at::Tensor& parameter) const { return parameter; }
  /// The whole, on the CPU, of what every rank has a part of as it has of `parameter`. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor whole_of(const at::Tensor& /*parameter*/, const at::Tensor& part) { return part; }
  /// The same on rank 0 alone, for a file; undefined on the others.
  [[nodiscard]] virtual at::Tensor whole_on_rank_zero(const at::Tensor& /*parameter*/, const at::Tensor& part) {
    return part;
  }
  /// The tensors in which it holds weights beside the module's own.
  [[nodiscard]] virtual std::vector<at::Tensor> held() const { return {}; }
  /// What ranks share out, in a few words; "" if nothing.
  [[nodiscard]] virtual std::string sharding_text() const { return ""; }

  /// Reduces over all ranks; every rank gets the result. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor reduce(const at::Tensor& value, ReduceOp op) = 0;

  /// True on every rank if it is true on any. Blocks until all arrive.
  [[nodiscard]] virtual bool any(bool value) = 0;

  virtual void barrier() = 0;

  /// (world_size, …): the CPU tensor of every rank, rank by rank; same shape and type on all. Blocks until all arrive.
  [[nodiscard]] virtual at::Tensor gather(const at::Tensor& value) { return value.unsqueeze(0); }
  /// Every rank's text, rank by rank. Blocks until all arrive.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) { return {text}; }
  /// Every line that some rank has, once, the same on all ranks. Blocks until all arrive.
  [[nodiscard]] virtual std::string merge_lines(const std::string& text) { return text; }
  /// Rank 0's text. Blocks until all arrive.
  [[nodiscard]] virtual std::string broadcast(const std::string& text) { return text; }
};

}  // namespace levin
