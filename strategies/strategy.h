// The devices of a run and the communication of its ranks, with a base class for each concern; most functions take one
// of these bases.
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

/// The tensors that a strategy keeps equal on all ranks, by name.
struct ModuleTensors {
  std::vector<std::pair<std::string, at::Tensor>> parameters = {};
  std::vector<std::pair<std::string, at::Tensor>> buffers = {};
};

class Strategy : public DevicePlacement, public RankCollectives, public GradientSync, public Sharding {
 public:
  static const char* registry_name() { return "strategy"; }

  [[nodiscard]] virtual std::string name() const = 0;
  void use_device(at::Device device) override;
  /// Whether it requires one process per device: the trainer starts them and then calls join().
  [[nodiscard]] virtual bool is_distributed() const { return false; }
  /// Connects to the other ranks. Called once, before anything else; every rank.
  virtual void join(const World& /*world*/) {}

  /// Makes batch normalization use the statistics of all ranks' batches, from set_up() on. Called before it; has no
  /// effect with one rank.
  virtual void use_sync_batchnorm() {}

  /// An object that exists while the module's layers are made, converted and placed, but not while weights are loaded:
  /// it controls how this thread allocates tensors. Null: as usual. `training`: as set_up() will be called. After
  /// join().
  [[nodiscard]] virtual std::shared_ptr<void> model_sharded_context(bool /*training*/) { return nullptr; }

  /// Broadcasts rank 0's weights to all ranks, and prepares to train them if `training`. After the weights are loaded
  /// and on the device; every rank.
  virtual void set_up(const ModuleTensors& /*module*/, bool /*training*/) {}
  /// Called when training has succeeded: gives the module its unsharded weights again. Every rank.
  virtual void leave() {}
  /// Releases the module.
  virtual void tear_down() {}
};

}  // namespace levin
