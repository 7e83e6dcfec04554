// The base of all optimizers that update each tensor from its own gradient and state. It sorts the tensors into
// batches, one kernel call each (ATen's fused kernels, or foreach), keeps the lists between steps and rebuilds them
// only when a gradient appears or disappears. A new optimizer names its state and implements update(); one with foreach
// kernels that treats every number separately overrides packs_small_tensors().
//
// Tensors without a gradient are skipped; their state is created with their first gradient.
#pragma once

#include <array>
#include <deque>
#include <optional>

#include "levin/optim/optimizer.h"
#include "levin/optim/tensor_pack.h"

namespace levin {

class BatchedOptimizer : public Optimizer {
 public:
  [[nodiscard]] State state() const override;
  void load_state(const State& saved) override;
  void make_recordable() final;
  void send_learning_rates() final;
  [[nodiscard]] int64_t version() const final { return version_; }
  void step_unless(const at::Tensor& found_inf) final;
  /// Whether updates that are recorded hold the learning rates as numbers, so that a changed rate needs a new
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
    double product = 1;          // of a number per step (NAdam's mu_product)
    bool first = false;          // the state was never written: SGD's buffer starts as the gradient
    size_t group = 0;
    size_t kind = 0;                        // kind_of() each
    bool had_momentum = false;              // whether group.momentum was other than 0 when the batch was made
    std::vector<size_t> slots;              // which parameters, numbered through all groups
    std::vector<c10::TensorImpl*> sources;  // the parameters themselves
    std::vector<size_t> copied;             // positions whose parameter has gaps in memory: params holds a dense copy
    std::optional<detail::TensorPack> pack = {};
    // Of recordable updates.
    at::Tensor lr = {};  // () on the device, float32 on a GPU and float64 on a CPU, to be used in place of the group's;
                         // undefined: the group's is used (records_learning_rates)
    double sent_lr = -1;                       // what it holds
    std::optional<at::Tensor> found_inf = {};  // the update is to do nothing if it is 1
  };

  using Optimizer::Optimizer;

  /// PyTorch's names of the tensors kept for each parameter; the same throughout an optimizer's life.
  [[nodiscard]] virtual std::vector<std::string> state_names() const = 0;
  /// Which of several updates a tensor takes (Muon: of a matrix, or AdamW's); one batch holds tensors of one kind.
  [[nodiscard]] virtual size_t kind_of(const at::Tensor& /*param*/) const { return 0; }
  /// Whether state `index` is in use with these settings.
  [[nodiscard]] virtual bool uses_state(size_t /*index*/, const Group& /*group*/, size_t /*kind*/) const {
    return true;
  }
  /// The initial value of state.
  [[nodiscard]] virtual double initial_state() const { return 0; }
  /// Whether the number of updates matters and is saved ("0.step").
  [[nodiscard]] virtual bool counts_steps() const { return true; }
  /// Whether update() reads step_tensors.
  [[nodiscard]] virtual bool has_step_tensor() const { return false; }
  /// Whether update() treats every number separately, whatever its tensor: then small tensors on a CPU are packed and
  /// updated as one. For foreach kernels; fused ones gain nothing.
  [[nodiscard]] virtual bool packs_small_tensors() const { return false; }
  /// Whether a GPU's kernels round the learning rate to the precision in which they compute: float32, or float64 for
  /// float64 parameters.
  [[nodiscard]] virtual bool rounds_learning_rate() const { return true; }
  /// The saved name of Batch::product, or "".
  [[nodiscard]] virtual std::string product_name() const { return ""; }
  /// The type in which it is saved; update() rounds it likewise.
  [[nodiscard]] virtual at::ScalarType product_type() const { return at::kFloat; }
  /// Updates the batch's params; grads may be overwritten as a list, never in place.
  virtual void update(Batch& batch, const Group& group) = 0;

  at::Tensor do_step(const Closure* closure) final;
  void group_added() final;

  /// State `index` of a parameter, numbered through all groups; undefined before its first update.
  [[nodiscard]] const at::Tensor& state_of(size_t param, size_t index) const { return slots_[param].state[index]; }

 private:
  struct Slot {
    at::Tensor param;
    size_t group = 0;
    Tensors state;  // as state_names(); undefined until first used
    int64_t step = 0;
    double product = 1;
  };

  [[nodiscard]] bool has_gradients() const;
  bool collect_gradients();
  bool list_gradients(Batch& batch) const;
  bool pack_gradients(Batch& batch) const;
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
  at::Tensor load_tensor(const at::Tensor& saved, const std::string& key, const Slot& slot) const;
  void check_names(const State& saved) const;

  std::deque<Slot> slots_;
  std::vector<Batch> batches_;
  std::vector<c10::TensorImpl*> idle_;        // parameters that had no gradient when the batches were made
  bool stale_ = true;                         // batches_ must be rebuilt
  bool recordable_ = false;                   // learning rates are read from tensors
  int64_t version_ = 0;                       // how often batches_ were built or dropped
  std::optional<at::Tensor> found_inf_ = {};  // of the running step
};

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
}  // namespace detail

}  // namespace levin
