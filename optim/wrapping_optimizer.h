// What optimizers around another one share (SAM, Lookahead): its groups, whose settings schedules change here, and its
// state.
#pragma once

#include <memory>
#include <string>

#include "levin/core/registry.h"
#include "levin/optim/named_tensors.h"
#include "levin/optim/optimizer.h"
#include "levin/optim/whole_tensors.h"

namespace levin {

/// A run file gives the inner optimizer as a class; its parameters are those of this one.
class WrappingOptimizer : public Optimizer, public NamesParameters, public WholeTensorUpdate {
 public:
  [[nodiscard]] const Optimizer& inner() const { return *inner_; }
  [[nodiscard]] bool updates_whole_tensors() const override;
  /// For the inner optimizer.
  void take_names(const NamedTensors& parameters) override;
  /// The inner optimizer's tensors, and those of own_state().
  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;

 protected:
  /// `inner` may have groups; they become this one's. `outer`: the class, for messages. Throws ConfigError for an
  /// optimizer that takes a closure, or keeps an average.
  WrappingOptimizer(std::shared_ptr<Optimizer> inner, Group defaults, const std::string& outer);

  /// The registered class that `spec` names, without groups. Throws ConfigError.
  [[nodiscard]] static std::shared_ptr<Optimizer> make_inner(const ClassSpec& spec, const std::string& outer);
  /// The settings of its groups that set nothing.
  [[nodiscard]] static Group defaults_of(const ClassSpec& spec, const std::string& outer);
  /// Those of the first group; groups that are added later take them.
  [[nodiscard]] static Group defaults_of(const Optimizer& inner);
  /// As in a run file.
  [[nodiscard]] static ClassSpec spec_of(const Optimizer& inner);

  /// The inner optimizer's update, with this one's settings.
  void step_inner();
  /// Tensors and numbers to be saved beside the inner optimizer's; tensors as "0.NAME", like a parameter's state.
  [[nodiscard]] virtual State own_state() const { return {}; }
  /// Takes them out of `saved`. Throws CheckpointError, changing nothing.
  virtual void load_own_state(State& /*saved*/) {}

 private:
  void group_added() override;

  std::shared_ptr<Optimizer> inner_;
};

}  // namespace levin
