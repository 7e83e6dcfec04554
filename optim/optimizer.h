// The interface of all optimizers: parameters in groups, one update per step(), state by name. "Writing an optimizer"
// in docs/extending.md lists the virtual functions and says which of them an optimizer needs.
//
//   AdamW optimizer(model.parameters(), {.lr = 3e-4});
//   loss.backward();  optimizer.step();  optimizer.zero_grad();
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/state.h"

namespace levin {

/// Tensors that share settings. An unset setting is taken from the optimizer's options.
struct ParamGroup {
  std::vector<at::Tensor> params = {};
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  std::optional<double> momentum = {};  // betas[0] where the optimizer has betas
};

/// How a tensor of an optimizer's state relates to its parameter. Decides how the tensor is sharded with the parameter,
/// gathered for a checkpoint and loaded under a different world size.
enum class StateLayout {
  elementwise,  // the parameter's shape: every element belongs to the parameter's element at the same index
  scalar,       // shape (), equal on all ranks: a number of steps, a product
  own_shape,    // any other shape, equal on all ranks: row and column factors
};

/// What an optimizer may ask about parameters of which every rank updates a flat range (fsdp).
class ParameterShards {
 public:
  /// The elements of a flattened parameter that a rank has.
  struct Range {
    int64_t begin = 0;                // index of this rank's first element in the flattened parameter
    std::vector<int64_t> shape = {};  // of the full parameter
  };
  virtual ~ParameterShards() = default;
  /// Returns this rank's range, which may be empty, or nothing for a parameter that is not sharded.
  [[nodiscard]] virtual std::optional<Range> range_of(const at::Tensor& param) const = 0;
  /// Returns the sum over all ranks of a tensor with the same shape and type on each. Every rank calls it.
  [[nodiscard]] virtual at::Tensor sum_over_ranks(const at::Tensor& value) const = 0;

 protected:
  ParameterShards() = default;
  ParameterShards(const ParameterShards&) = default;
  ParameterShards& operator=(const ParameterShards&) = default;
};

/// The base of optimizers. Its state is what it needs from one update to the next. Movable until a scheduler is
/// attached (schedulers keep a reference). Not thread-safe. Each rank has its own and steps it.
class Optimizer : public Stateful {
 public:
  static const char* registry_name() { return "optimizer"; }

  /// Recomputes the loss and the gradients, and returns the loss.
  using Closure = std::function<at::Tensor()>;

  /// A group in use. Schedulers and callbacks may change its numbers between steps; add_param_group adds tensors.
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

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Returns the registered name: "AdamW".
  [[nodiscard]] virtual std::string name() const = 0;

  /// Returns the options it was created with, as in a run file, or null if they are unknown. Ranks compare them.
  [[nodiscard]] virtual ConfigNode written_options() const { return {}; }

  /// Adds a group. A tensor that the group lists twice, because its layer has two names, counts once. Throws Error if
  /// the group is empty, holds a tensor that is undefined, complex, not a leaf or already in a group, or sets a number
  /// that is negative, not finite, or unknown to this optimizer.
  void add_param_group(ParamGroup group);

  [[nodiscard]] std::vector<Group>& param_groups() { return groups_; }
  [[nodiscard]] const std::vector<Group>& param_groups() const { return groups_; }
  [[deprecated("use param_groups()")]] [[nodiscard]] std::vector<Group>& groups() { return groups_; }
  [[deprecated("use param_groups()")]] [[nodiscard]] const std::vector<Group>& groups() const { return groups_; }

  /// Returns all tensors, each once, group after group: the order in which state_dict() numbers them.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  /// Drops the gradients, or fills them with zeros (needed where gradients are views of communication buckets).
  void zero_grad(bool set_to_none = true);

  /// Updates every parameter that has a gradient. Throws Error if needs_closure().
  void step();

  /// Calls `closure` with gradients enabled (once; LBFGS up to max_eval times), updates, and returns the first loss.
  at::Tensor step(const Closure& closure);

  /// Returns whether only step(closure) works.
  [[nodiscard]] virtual bool needs_closure() const { return false; }

  // ---- parameters that are sharded over ranks (fsdp) ----------------------------------------------------------------
  /// Returns whether the update of one element depends on other elements of its tensor (by a norm, by a product of
  /// matrices), so that a shard cannot be updated. The trainer then refuses strategies that shard.
  [[nodiscard]] virtual bool updates_whole_tensors() const { return false; }
  /// Called at set-up, with null unless the strategy shards. For an optimizer that sums over ranks what its update
  /// needs of a whole tensor. Sharded parameters are then empty on some ranks, and all ranks must make the same calls
  /// of sum_over_ranks() in every step.
  virtual void use_shards(std::shared_ptr<const ParameterShards> /*shards*/) {}
  /// Returns the layout of the tensors "0.NAME", "1.NAME", … of state_dict().
  [[nodiscard]] virtual StateLayout layout(const std::string& name) const {
    return name == "step" ? StateLayout::scalar : StateLayout::elementwise;
  }
  /// Throws Error if a tensor of `state`, which this optimizer's state_dict() returned, contradicts layout(). Sharded
  /// parameters must be this rank's shards meanwhile (UpdateScope).
  void check_layouts(const State& state) const;

  // ---- updates that are recorded and replayed (TrainerOptions::record_steps) ----------------------------------------
  /// Returns whether an update can be recorded: it reads everything that changes between updates from tensors on the
  /// device.
  [[nodiscard]] virtual bool is_recordable() const { return false; }
  /// Returns a sentence that names the LibTorch that a recordable update needs, if this LibTorch is too old; "" for all
  /// other optimizers.
  [[nodiscard]] virtual std::string why_not_recordable() const { return ""; }
  /// From the next step on the learning rates are read from tensors, on a GPU in the precision of its kernels. Requires
  /// is_recordable().
  virtual void make_recordable() {}
  /// Writes the groups' learning rates into those tensors. Called before an update is recorded or replayed.
  virtual void send_learning_rates() {}
  /// Changes when a recorded update becomes invalid because tensors were added, removed or loaded.
  [[nodiscard]] virtual int64_t version() const { return 0; }
  /// Steps, but changes nothing if `found_inf` (one float32 on the parameters' device: 0 or 1) is 1. The device decides
  /// and no rank waits. Throws Error unless is_recordable().
  virtual void step_unless(const at::Tensor& found_inf);

  // ---- state --------------------------------------------------------------------------------------------------------
  /// Returns the groups' numbers, and tensors named as in PyTorch: "0.exp_avg", "0.step". The tensors are the
  /// optimizer's own: the next step changes them. A parameter without an update has none.
  [[nodiscard]] State state_dict() const override { return Stateful::state_dict(); }

  /// Loads `saved`; the following steps are bitwise identical to the steps of the optimizer that saved it. Throws
  /// CheckpointError, changing nothing, if names, counts or shapes belong to a different optimizer or model.
  void load_state_dict(const State& saved) override { Stateful::load_state_dict(saved); }

 protected:
  /// `defaults` holds what groups leave unset; its params stay empty.
  explicit Optimizer(Group defaults) : defaults_(std::move(defaults)) {}
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  /// Runs `closure` if there is one and updates; returns the loss (undefined without a closure).
  virtual at::Tensor do_step(const Closure* closure) = 0;

  /// Called after a group and its tensors were added.
  virtual void group_added() {}

  /// Throw Error: an optimizer overrides state_dict() and load_state_dict().
  [[nodiscard]] State default_state_dict() const override;
  void load_default_state_dict(const State& saved) override;

  /// Throws CheckpointError with "AdamW: " and the text.
  [[noreturn]] void refuse_state(const std::string& why) const;

  /// Writes the optimizer's name and its groups' numbers.
  void save_groups(State& state) const;
  /// Checks name and counts; returns the groups with the saved numbers.
  [[nodiscard]] std::vector<Group> saved_groups(const State& saved) const;
  /// Throws CheckpointError unless every tensor's key is a parameter's number, a dot and one of `known`.
  void check_state_keys(const State& saved, const std::vector<std::string>& known) const;
  /// Returns the tensor; throws CheckpointError if it is missing.
  [[nodiscard]] const at::Tensor& saved_tensor(const State& saved, const std::string& key) const;
  /// Same as above, but throws CheckpointError also for a different shape.
  [[nodiscard]] const at::Tensor& saved_tensor(const State& saved, const std::string& key, at::IntArrayRef sizes) const;

  std::vector<Group> groups_;

 private:
  void check_group(const ParamGroup& group) const;
  Group defaults_;
};

}  // namespace levin
