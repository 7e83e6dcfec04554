// The base of optimizers that wrap another one (SAM, Lookahead). The wrapping optimizer owns the groups, whose settings
// schedules change, and passes them to the inner optimizer at every step.
#pragma once

#include <memory>
#include <string>

#include "levin/core/options/registry.h"
#include "levin/optim/named_tensors.h"
#include "levin/optim/optimizer.h"

namespace levin {

/// The base of optimizers that take their steps with an inner one. It has the inner optimizer's parameters, and its
/// state with own_state() added. A run file gives the inner optimizer as a class.
class WrappingOptimizer : public Optimizer, public NamesParameters {
 public:
  [[nodiscard]] const Optimizer& inner() const { return *inner_; }
  [[nodiscard]] bool updates_whole_tensors() const override;
  void use_shards(std::shared_ptr<const ParameterShards> shards) override;
  /// Returns the inner optimizer's layout. Override it for tensors of own_state() that are not elementwise.
  [[nodiscard]] StateLayout layout(const std::string& name) const override;
  /// Passes the names to the inner optimizer.
  void take_names(const NamedTensors& parameters) override;

 protected:
  /// `inner` may have groups; this optimizer takes them over. `outer` is the class's name, for messages. Throws
  /// ConfigError for an optimizer that takes a closure or keeps an average.
  WrappingOptimizer(std::shared_ptr<Optimizer> inner, Group defaults, const std::string& outer);

  /// Creates the registered class that `spec` names, without groups. Throws ConfigError.
  [[nodiscard]] static std::shared_ptr<Optimizer> make_inner(const ClassSpec& spec, const std::string& outer);
  /// Returns the settings of `spec`'s groups that leave everything unset.
  [[nodiscard]] static Group defaults_of(const ClassSpec& spec, const std::string& outer);
  /// Returns the settings of the first group, for groups that are added later.
  [[nodiscard]] static Group defaults_of(const Optimizer& inner);
  /// Returns class and options as in a run file.
  [[nodiscard]] static ClassSpec spec_of(const Optimizer& inner);

  /// Steps the inner optimizer with this optimizer's settings.
  void step_inner();
  /// Returns what is saved in addition to the inner optimizer's state; its tensors are named "0.NAME".
  [[nodiscard]] virtual State own_state() const { return {}; }
  /// Loads own_state() from `saved` and removes its tensors there. Throws CheckpointError, changing nothing.
  virtual void load_own_state(State& /*saved*/) {}
  /// Returns the inner optimizer's tensors and the tensors of own_state().
  [[nodiscard]] State default_state_dict() const override;
  void load_default_state_dict(const State& saved) override;

 private:
  void group_added() override;

  std::shared_ptr<Optimizer> inner_;
};

}  // namespace levin
