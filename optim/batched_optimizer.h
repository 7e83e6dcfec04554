// The base of optimizers that update each tensor from its own gradient and state. It sorts the tensors into batches,
// one kernel call each (ATen's fused kernels, or foreach), keeps the lists between steps and rebuilds them only when a
// gradient appears or disappears. A new optimizer names its state and implements update(). If it uses foreach kernels
// and is elementwise, it overrides packs_small_tensors().
//
// Tensors without a gradient are skipped. Their state is created with their first gradient.
#pragma once

#include <array>
#include <deque>
#include <optional>

#include "levin/core/options/fields.h"
#include "levin/optim/optimizer.h"
#include "levin/optim/tensor_pack.h"

namespace levin {

/// An optimizer whose updates run on lists of tensors. step() throws Error for a sparse gradient, and for a
/// parameter that differs in shape from its state.
class BatchedOptimizer : public Optimizer {
 public:
  ~BatchedOptimizer() override;
  /// Scalar for "step" and product_name(), else elementwise.
  [[nodiscard]] StateLayout layout(const std::string& name) const override;
  void make_recordable() final;
  void send_learning_rates() final;
  [[nodiscard]] int64_t version() const final { return version_; }
  void step_unless(const at::Tensor& found_inf) final;
  /// Returns whether updates that are recorded hold the learning rates as numbers, so that a changed rate needs a new
  /// recording. A GPU's kernels read rates from tensors in float32; where they compute with a rate in float64, a rate
  /// such as 0.01 would give other weights than it does without recordings.
  [[nodiscard]] bool records_learning_rates() const;

 protected:
  using Tensors = std::vector<at::Tensor>;

  /// Tensors of one group, device, type and age. All lists run in parallel; if small tensors are packed, params, grads
  /// and the lists of state have one flat tensor that contains all of them.
  struct Batch {
    Tensors params;
    Tensors grads;               // only during a step: held longer they would keep old gradients alive
    std::vector<Tensors> state;  // one list for each of state_names(); empty if the state is not used
    Tensors step_tensors;        // the same float32 tensor for each parameter, for the fused kernels
    int64_t step = 0;            // updates, including the next one
    double product = 1;          // of one number per step (NAdam's mu_product)
    bool first = false;          // the state was never written: SGD's buffer starts as the gradient
    size_t group = 0;
    size_t kind = 0;                        // kind_of() of each parameter
    bool had_momentum = false;              // whether group.momentum was not 0 when the batch was made
    std::vector<size_t> slots;              // the parameters' numbers, through all groups
    std::vector<c10::TensorImpl*> sources;  // the parameters themselves
    std::vector<size_t> copied;             // positions whose parameter has gaps in memory: params holds a dense copy
    std::optional<detail::TensorPack> pack = {};
    // For recordable updates:
    at::Tensor lr = {};  // () on the device, float32 on a GPU and float64 on a CPU: replaces the group's learning rate;
                         // undefined: the group's is used (records_learning_rates)
    double sent_lr = -1;                       // the value of `lr`
    std::optional<at::Tensor> found_inf = {};  // if it is 1, the update does nothing
  };

  explicit BatchedOptimizer(Group defaults);
  BatchedOptimizer(BatchedOptimizer&&) noexcept;
  BatchedOptimizer& operator=(BatchedOptimizer&&) noexcept;

  /// Returns PyTorch's names of the tensors kept for each parameter; the same throughout an optimizer's life.
  [[nodiscard]] virtual std::vector<std::string> state_names() const = 0;
  /// Returns which of several updates a tensor takes (Muon's for matrices, AdamW's for others). A batch holds tensors
  /// of one kind.
  [[nodiscard]] virtual size_t kind_of(const at::Tensor& /*param*/) const { return 0; }
  /// Returns whether state `index` is in use with these settings.
  [[nodiscard]] virtual bool uses_state(size_t /*index*/, const Group& /*group*/, size_t /*kind*/) const {
    return true;
  }
  /// Returns the initial value of state.
  [[nodiscard]] virtual double initial_state() const { return 0; }
  /// Returns whether the number of updates matters and is saved ("0.step").
  [[nodiscard]] virtual bool counts_steps() const { return true; }
  /// Returns whether update() reads step_tensors.
  [[nodiscard]] virtual bool has_step_tensor() const { return false; }
  /// Returns whether update() treats every element separately, regardless of its tensor: then small tensors on a CPU
  /// are packed and updated as one. For foreach kernels; fused kernels gain nothing.
  [[nodiscard]] virtual bool packs_small_tensors() const { return false; }
  /// Returns whether a GPU's kernels round the learning rate to the precision in which they compute: float32, or
  /// float64 for float64 parameters.
  [[nodiscard]] virtual bool rounds_learning_rate() const { return true; }
  /// Returns the name under which Batch::product is saved, or "" if it is not used.
  [[nodiscard]] virtual std::string product_name() const { return ""; }
  /// Returns the type in which the product is saved; update() rounds it to that type.
  [[nodiscard]] virtual at::ScalarType product_type() const { return at::kFloat; }
  /// Updates the batch's params; grads may be overwritten as a list, never in place.
  virtual void update(Batch& batch, const Group& group) = 0;

  at::Tensor do_step(const Closure* closure) final;
  void group_added() final;
  [[nodiscard]] State default_state_dict() const override;
  void load_default_state_dict(const State& saved) override;

  /// Returns state `index` of a parameter, numbered through all groups; undefined before its first update.
  [[nodiscard]] at::Tensor state_of(size_t param, size_t index) const {
    const Tensors& state = slots_[param].state;
    return index < state.size() ? state[index] : at::Tensor();
  }

 private:
  struct Slot {
    at::Tensor param;
    size_t group = 0;
    Tensors state;  // as state_names(), empty before the first update; undefined where not in use
    int64_t step = 0;
    double product = 1;
  };

  [[nodiscard]] bool has_gradients() const;
  bool collect_gradients();
  bool list_gradients(Batch& batch) const;
  bool pack_gradients(Batch& batch) const;
  void check_shape(size_t index, const at::Tensor& tensor, const char* what) const;
  at::Tensor laid_as(const at::Tensor& param, const at::Tensor& grad, size_t index) const;
  void keep_progress();
  void make_batches();
  void add_to_batch(size_t index);
  Batch& batch_for(const Slot& slot, const at::Tensor& param, bool first, bool packed);
  void pack_state(Batch& batch);
  void run(Batch& batch);
  [[nodiscard]] int64_t steps_done(const Batch& batch) const;
  void count_step(Batch& batch);
  void take_back_step(Batch& batch);
  void send_learning_rate(Batch& batch);
  void save_slot(const Slot& slot, const std::string& prefix, State& state) const;
  void load_slot(const State& saved, size_t index, Slot& slot) const;

  std::deque<Slot> slots_;
  std::vector<Batch> batches_;
  std::vector<c10::TensorImpl*> idle_;        // parameters that had no gradient when the batches were made
  bool stale_ = true;                         // batches_ must be rebuilt
  bool recordable_ = false;                   // learning rates are read from tensors
  int64_t version_ = 0;                       // how often batches_ were built or dropped
  std::optional<at::Tensor> found_inf_ = {};  // of the running step
};

/// A BatchedOptimizer with the constructors of all built-in ones, made from the options struct O: a struct with
/// fields() and the member `kName`, the class's registered name. Its lr, weight_decay and momentum (or betas[0]) are
/// the defaults of groups. O may have a function check() that throws ConfigError for values that do not go together.
/// Levin's own are `extern template`, so that only one file compiles what is defined below the class.
template <class O>
class OptimizerOf : public BatchedOptimizer {
 public:
  using Options = O;

  /// Groups are added later. Throws ConfigError for invalid options.
  explicit OptimizerOf(O options = {});
  explicit OptimizerOf(std::vector<at::Tensor> params, O options = {});
  explicit OptimizerOf(std::vector<ParamGroup> groups, O options = {});

  [[nodiscard]] std::string name() const final { return O::kName; }
  [[nodiscard]] ConfigNode written_options() const override;

 protected:
  O options_;
};

namespace detail {
/// The numbers of groups that set none.
template <class O>
Optimizer::Group group_defaults(const O& options) {
  constexpr bool has_betas = requires {
    options.betas;
  };
  constexpr bool has_momentum = requires {
    options.momentum;
  };
  Optimizer::Group group{
      .lr = options.lr, .weight_decay = options.weight_decay, .has_momentum = has_betas || has_momentum};
  if constexpr (has_betas) group.momentum = options.betas[0];
  if constexpr (has_momentum) group.momentum = options.momentum;
  return group;
}
}  // namespace detail

template <class O>
OptimizerOf<O>::OptimizerOf(O options)
    : BatchedOptimizer(detail::group_defaults(options)),
      options_(checked(std::move(options), std::string(O::kName) + "Options")) {
  if constexpr (requires { options_.check(); }) options_.check();
}

template <class O>
OptimizerOf<O>::OptimizerOf(std::vector<at::Tensor> params, O options) : OptimizerOf(std::move(options)) {
  add_param_group({.params = std::move(params)});
}

template <class O>
OptimizerOf<O>::OptimizerOf(std::vector<ParamGroup> groups, O options) : OptimizerOf(std::move(options)) {
  for (auto& group : groups) add_param_group(std::move(group));
}

template <class O>
ConfigNode OptimizerOf<O>::written_options() const {
  return write_options(options_);
}

namespace detail {
/// `call(lr)` with the tensor if there is one, else with the number: the fused kernels take either.
template <class Call>
void with_learning_rate(const at::Tensor& tensor, double number, Call call) {
  if (tensor.defined()) return call(tensor);
  call(number);
}

inline bool are_betas(const std::array<double, 2>& betas) {
  return betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 && betas[1] < 1;
}

/// The gradients as the update requires them: negated to maximize, with `weight_decay` * param added.
void prepare_gradients(std::vector<at::Tensor>& grads, const std::vector<at::Tensor>& params, double weight_decay,
                       bool maximize);

/// The common part of NAdam, RAdam and LAMB: weight decay, and Adam's means of gradients and of their squares.
struct AdamMeans {
  double beta2 = 0;  // beta1 is the group's momentum
  bool decoupled_weight_decay = false;
  bool maximize = false;

  /// Decays the parameters, or adds the decay to the gradients; updates the means. `grads` become the update's input.
  void update(const Optimizer::Group& group, const std::vector<at::Tensor>& params, std::vector<at::Tensor>& grads,
              const std::vector<at::Tensor>& exp_avg, const std::vector<at::Tensor>& exp_avg_sq) const;
};
}  // namespace detail

}  // namespace levin
