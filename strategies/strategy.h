// The devices of a run and the communication of its ranks.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "levin/strategies/device_placement.h"
#include "levin/strategies/gradient_sync.h"
#include "levin/strategies/rank_collectives.h"
#include "levin/strategies/sharding.h"
#include "levin/strategies/strategy_recorder.h"

namespace levin {

/// The five parts of a strategy. Most functions take only the part that they need.
class StrategyParts {
 public:
  /// Returns the part that knows the devices of this rank.
  [[nodiscard]] DevicePlacement& placement() const { return *placement_; }
  /// Returns the part that communicates with the other ranks.
  [[nodiscard]] RankCollectives& ranks() const { return *ranks_; }
  /// Returns the part that runs backward passes and reduces gradients.
  [[nodiscard]] GradientSync& gradients() const { return *gradients_; }
  /// Returns the part that knows what each rank stores of the weights.
  [[nodiscard]] Sharding& sharding() const { return *sharding_; }
  /// Returns the part that records and replays steps.
  [[nodiscard]] StrategyRecorder& recorder() const { return *recorder_; }

 private:
  friend class Strategy;
  std::shared_ptr<DevicePlacement> placement_;
  std::shared_ptr<RankCollectives> ranks_;
  std::shared_ptr<GradientSync> gradients_;
  std::shared_ptr<Sharding> sharding_;
  std::shared_ptr<StrategyRecorder> recorder_;
};

/// How a run is spread over devices and processes: a name, five parts and the order in which they are set up. By
/// default one process on one device, which shards and records nothing. A strategy of a user's own replaces the parts
/// that differ, in its constructor or from outside:
///
///   levin::DDP ddp;
///   ddp.use(std::make_unique<HalfGradients>());  // a class of the user's own, derived from levin::GradientSync
///   levin::Trainer trainer({.devices = 2, .strategy = std::move(ddp)});
///
/// The training thread calls it. It may be moved until the trainer has it; then the parts stay where they are.
class Strategy {
 public:
  static const char* registry_name() { return "strategy"; }

  Strategy();
  virtual ~Strategy() = default;
  Strategy(Strategy&&) noexcept = default;
  Strategy& operator=(Strategy&&) = delete;

  [[nodiscard]] virtual std::string name() const = 0;

  [[nodiscard]] DevicePlacement& placement() const { return parts_->placement(); }
  [[nodiscard]] RankCollectives& ranks() const { return parts_->ranks(); }
  [[nodiscard]] GradientSync& gradients() const { return parts_->gradients(); }
  [[nodiscard]] Sharding& sharding() const { return parts_->sharding(); }
  [[nodiscard]] StrategyRecorder& recorder() const { return parts_->recorder(); }

  /// Replaces a part, before the trainer uses the strategy. Throws ConfigError if `part` is null.
  void use(std::unique_ptr<DevicePlacement> part);
  void use(std::unique_ptr<RankCollectives> part);
  /// Steps are then not recorded, until use() gets a recorder that knows these gradients.
  void use(std::unique_ptr<GradientSync> part);
  void use(std::unique_ptr<Sharding> part);
  void use(std::unique_ptr<StrategyRecorder> part);

  /// Makes batch normalization use the statistics of all ranks' batches, from set_up() on. Called before it; has no
  /// effect with one rank.
  virtual void use_sync_batchnorm() {}

  /// Gives all ranks rank 0's weights, and prepares to train them if `training`. Every rank calls it, after the weights
  /// are loaded and on the device.
  virtual void set_up(const ModuleTensors& module, bool training) { gradients().set_up(module, training); }
  /// Called in a fit. From here to end_evaluation() all weights are unsharded on every rank, and a forward pass needs
  /// no collective, because ranks may have different numbers of batches. Every rank calls it. Blocks until all arrive.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}
  /// Called when training has succeeded: gives the module its full weights again. Every rank calls it.
  virtual void leave() {}
  /// Releases the module.
  virtual void tear_down();

 protected:
  /// Makes a part of type Part, uses it, and returns it.
  template <class Part, class... Args>
  Part& make(Args&&... args) {
    auto part = std::make_unique<Part>(std::forward<Args>(args)...);
    Part& made = *part;
    use(std::move(part));
    return made;
  }

 private:
  template <class Part>
  void replace(std::shared_ptr<Part>& old, std::unique_ptr<Part> part);

  std::shared_ptr<StrategyParts> parts_;
};

}  // namespace levin
