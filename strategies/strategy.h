// Where a run computes and how its ranks agree, by concern: the bases are what most functions take.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/strategies/device_placement.h"
#include "levin/strategies/gradient_sync.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/strategies/sharding.h"

namespace levin {

/// What a strategy keeps equal on all ranks, by name.
struct ModuleTensors {
  std::vector<std::pair<std::string, at::Tensor>> parameters = {};
  std::vector<std::pair<std::string, at::Tensor>> buffers = {};
};

class Strategy : public DevicePlacement, public RankCollectives, public GradientSync, public Sharding {
 public:
  static const char* registry_name() { return "strategy"; }

  [[nodiscard]] virtual std::string name() const = 0;
  void use_device(at::Device device) override;
  /// Whether it wants a process of its own for every device: the trainer starts them and then calls join().
  [[nodiscard]] virtual bool is_distributed() const { return false; }
  /// Meets the other ranks. Once, before anything else; every rank.
  virtual void join(const World& /*world*/) {}

  /// Batch normalization by the statistics of all ranks' batches, from set_up() on. Before it; with one rank there is
  /// nothing to do.
  virtual void use_sync_batchnorm() {}

  /// Held while the module's layers are made, converted and laid out, but not while weights are read into them: what
  /// tensors of this thread are made with. Null: as anywhere. `training`: as set_up() will be called. After join().
  [[nodiscard]] virtual std::shared_ptr<void> model_sharded_context(bool /*training*/) { return nullptr; }

  /// Gives all ranks rank 0's weights, and makes ready to train them if `training`. After the weights are loaded and
  /// on the device; every rank.
  virtual void set_up(const ModuleTensors& /*module*/, bool /*training*/) {}
  /// Training has gone well to its end: the module has its own unsharded weights again. Every rank.
  virtual void leave() {}
  /// Forgets the module.
  virtual void tear_down() {}
};

}  // namespace levin
