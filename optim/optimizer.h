// The interface of all optimizers: parameters in groups, one update per step(), state by name.
//
//   AdamW optimizer(model.parameters(), {.lr = 3e-4});
//   loss.backward();  optimizer.step();  optimizer.zero_grad();
//
// Movable until a scheduler is attached (schedulers keep a reference). Not thread-safe. Every rank steps its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/state.h"

namespace levin {

/// Tensors that share settings; unset ones are the optimizer's options.
struct ParamGroup {
  std::vector<at::Tensor> params = {};
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  std::optional<double> momentum = {};  // betas[0] where the optimizer has betas
};

class Optimizer {
 public:
  static const char* registry_name() { return "optimizer"; }

  /// Recomputes the loss and the gradients, and returns the loss.
  using Closure = std::function<at::Tensor()>;

  /// A group in use. Schedulers and callbacks may change the numbers between steps; tensors are added by
  /// add_param_group.
  struct Group {
    std::vector<at::Tensor> params = {};
    double lr = 0;
    double initial_lr = 0;  // lr when the first scheduler was attached
    double momentum = 0;    // betas[0] where the optimizer has betas
    double weight_decay = 0;
    bool has_momentum = false;
    bool has_weight_decay = true;
    bool scheduled = false;  // initial_lr is fixed
  };

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// The registered name: "AdamW".
  [[nodiscard]] virtual std::string name() const = 0;

  /// The options it was created with, as in a run file; null: unknown. Ranks compare them.
  [[nodiscard]] virtual ConfigNode written_options() const { return {}; }

  /// A tensor that the group lists twice, of a layer with two names, counts once. Throws Error if the group is empty,
  /// holds a non-leaf, complex or undefined tensor or one of another group, or sets a number that is negative, not
  /// finite, or that this optimizer does not have.
  void add_param_group(ParamGroup group);

  [[nodiscard]] std::vector<Group>& groups() { return groups_; }
  [[nodiscard]] const std::vector<Group>& groups() const { return groups_; }

  /// All tensors, each once, group after group: the order in which state() numbers them.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  /// Drops the gradients, or fills them with zeros (needed where gradients are views of communication buckets).
  void zero_grad(bool set_to_none = true);

  /// Updates every parameter that has a gradient. Throws Error if needs_closure().
  void step();

  /// Calls `closure` with gradients enabled (once; LBFGS up to max_eval times), updates, and returns the first loss.
  at::Tensor step(const Closure& closure);

  /// Whether only step(closure) works.
  [[nodiscard]] virtual bool needs_closure() const { return false; }

  // ---- updates that are recorded and replayed (TrainerOptions::record_steps) ----------------------------------------
  /// Whether an update may be captured: everything that changes between updates is read from tensors on the device.
  [[nodiscard]] virtual bool is_recordable() const { return false; }
  /// From the next step on the learning rates are read from tensors, on a GPU in the precision of its kernels. Requires
  /// is_recordable().
  virtual void make_recordable() {}
  /// Writes the groups' learning rates into those tensors. Called before an update is captured or replayed.
  virtual void send_learning_rates() {}
  /// Changes when a captured update becomes invalid, because tensors were added, removed or loaded.
  [[nodiscard]] virtual int64_t version() const { return 0; }
  /// A step that changes nothing if `found_inf` (one float32 on the parameters' device: 0 or 1) is 1; the device
  /// decides, no rank waits. Throws Error unless is_recordable().
  virtual void step_unless(const at::Tensor& found_inf);

  /// Groups' numbers and tensors named as in PyTorch: "0.exp_avg", "0.step". The tensors are the optimizer's own: the
  /// next step changes them.
  [[nodiscard]] virtual State state() const = 0;

  /// Loads `saved`; the optimizer continues bit for bit. Throws CheckpointError, changing nothing, if names, counts or
  /// shapes are another optimizer's or another model's.
  virtual void load_state(const State& saved) = 0;

 protected:
  /// `defaults`: the settings of groups that set nothing; its params stay empty.
  explicit Optimizer(Group defaults) : defaults_(std::move(defaults)) {}
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  /// Runs `closure` if there is one and updates; returns the loss (undefined without a closure).
  virtual at::Tensor do_step(const Closure* closure) = 0;

  /// Called after a group and its tensors were added.
  virtual void group_added() {}

  /// "AdamW: " and the text, as CheckpointError.
  [[noreturn]] void refuse_state(const std::string& why) const;

  void save_groups(State& state) const;
  /// Checks name and counts; returns the groups with the saved numbers.
  [[nodiscard]] std::vector<Group> saved_groups(const State& saved) const;

  std::vector<Group> groups_;

 private:
  void check_group(const ParamGroup& group) const;
  Group defaults_;
};

}  // namespace levin
