#include "levin/optim/batched_optimizer.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "levin/core/tensors.h"

namespace levin {

namespace {

// The fused kernels go through both in memory order, so a gradient must have its parameter's memory layout.
bool same_layout(const at::Tensor& param, const at::Tensor& grad) {
  return param.dtype() == grad.dtype() &&
         ((param.is_contiguous() && grad.is_contiguous()) || param.strides() == grad.strides());
}

// State that is part of a pack would keep all of it alive.
void leave_pack(at::Tensor& state) {
  if (state.defined() && state.storage().nbytes() != state.nbytes()) state = state.clone();
}

}  // namespace

namespace detail {
void prepare_gradients(std::vector<at::Tensor>& grads, const std::vector<at::Tensor>& params, double weight_decay,
                       bool maximize) {
  if (maximize) grads = at::_foreach_neg(grads);
  if (weight_decay == 0) return;
  if (maximize) {
    at::_foreach_add_(grads, params, weight_decay);
  } else {
    grads = at::_foreach_add(grads, params, weight_decay);
  }
}

void AdamMeans::update(const Optimizer::Group& group, const std::vector<at::Tensor>& params,
                       std::vector<at::Tensor>& grads, const std::vector<at::Tensor>& exp_avg,
                       const std::vector<at::Tensor>& exp_avg_sq) const {
  prepare_gradients(grads, params, decoupled_weight_decay ? 0 : group.weight_decay, maximize);
  if (decoupled_weight_decay && group.weight_decay != 0) at::_foreach_mul_(params, 1 - group.lr * group.weight_decay);
  at::_foreach_lerp_(exp_avg, grads, 1 - group.momentum);
  at::_foreach_mul_(exp_avg_sq, beta2);
  at::_foreach_addcmul_(exp_avg_sq, grads, grads, 1 - beta2);
}
}  // namespace detail

// Here, so that programs do not compile what the lists and batches need.
BatchedOptimizer::BatchedOptimizer(Group defaults) : Optimizer(std::move(defaults)) {}
BatchedOptimizer::BatchedOptimizer(BatchedOptimizer&&) noexcept = default;
BatchedOptimizer& BatchedOptimizer::operator=(BatchedOptimizer&&) noexcept = default;
BatchedOptimizer::~BatchedOptimizer() = default;

void BatchedOptimizer::group_added() {
  for (const auto& param : groups_.back().params) slots_.push_back({param, groups_.size() - 1, {}, 0, 1});
  stale_ = true;
}

at::Tensor BatchedOptimizer::do_step(const Closure* closure) {
  at::Tensor loss = closure != nullptr ? (*closure)() : at::Tensor();
  // Without autograd's bookkeeping, which would cost time per tensor; run() increments the versions itself.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::NoGradGuard no_grad;
  if (stale_ || !collect_gradients()) {
    if (!has_gradients()) return loss;  // of a skipped batch; the batches fit again afterwards
    make_batches();
    collect_gradients();
  }
  for (auto& batch : batches_) run(batch);
  return loss;
}

bool BatchedOptimizer::has_gradients() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.param.grad().defined(); });
}

// False if the batches no longer fit: a gradient appeared or vanished, or momentum was switched on or off.
bool BatchedOptimizer::collect_gradients() {
  for (const auto* param : idle_) {
    if (param->grad().defined()) return false;
  }
  for (auto& batch : batches_) {
    if (batch.had_momentum != (groups_[batch.group].momentum != 0)) return false;
    if (!(batch.pack ? pack_gradients(batch) : list_gradients(batch))) return false;
  }
  return true;
}

bool BatchedOptimizer::list_gradients(Batch& batch) const {
  batch.grads.clear();
  for (size_t i = 0; i < batch.sources.size(); ++i) {
    const at::Tensor& grad = batch.sources[i]->grad();
    if (!grad.defined() || batch.params[i].sizes() != batch.sources[i]->sizes()) return false;
    check_shape(batch.slots[i], grad, "gradient");
    for (const Tensors& state : batch.state) {
      if (!state.empty()) check_shape(batch.slots[i], state[i], "state");
    }
    batch.grads.push_back(same_layout(batch.params[i], grad) ? grad : laid_as(batch.params[i], grad, batch.slots[i]));
  }
  return true;
}

bool BatchedOptimizer::pack_gradients(Batch& batch) const {
  const detail::TensorPack& pack = *batch.pack;
  for (size_t i = 0; i < batch.sources.size(); ++i) {
    const at::Tensor& grad = batch.sources[i]->grad();
    if (!grad.defined() || !pack.holds(i)) return false;
    check_shape(batch.slots[i], grad, "gradient");
    if (!pack.put_gradient(i, grad)) {
      (void)pack.put_gradient(i, laid_as(slots_[batch.slots[i]].param, grad, batch.slots[i]));
    }
  }
  batch.grads = {pack.grads()};
  return true;
}

// The kernels do not look at shapes.
void BatchedOptimizer::check_shape(size_t index, const at::Tensor& tensor, const char* what) const {
  const at::Tensor& param = slots_[index].param;
  if (tensor.sizes() == param.sizes()) return;
  throw Error(name() + ": tensor " + std::to_string(index) + " has shape " + shape_text(param.sizes()) + ", and its " +
              what + " " + shape_text(tensor.sizes()) +
              ". Change the rows of parameters with select_rows, with the one optimizer that has them, or make another "
              "optimizer.");
}

// A copy of the gradient with its parameter's memory layout.
at::Tensor BatchedOptimizer::laid_as(const at::Tensor& param, const at::Tensor& grad, size_t index) const {
  if (grad.layout() == at::kStrided) return at::empty_like(param).copy_(grad);
  throw Error(name() + ": tensor " + std::to_string(index) + " of shape " + shape_text(grad.sizes()) +
              " has a sparse gradient. Make the layer with sparse(false).");
}

void BatchedOptimizer::make_recordable() {
  if (recordable_) return;
  keep_progress();
  batches_.clear();
  stale_ = recordable_ = true;
}

bool BatchedOptimizer::records_learning_rates() const {
  return recordable_ &&
         std::any_of(batches_.begin(), batches_.end(), [](const Batch& batch) { return !batch.lr.defined(); });
}

void BatchedOptimizer::send_learning_rates() {
  const at::NoGradGuard no_grad;
  for (auto& batch : batches_) send_learning_rate(batch);
}

void BatchedOptimizer::send_learning_rate(Batch& batch) {
  const double lr = groups_[batch.group].lr;
  if (!batch.lr.defined() || batch.sent_lr == lr) return;
  batch.lr.fill_(lr);
  batch.sent_lr = lr;
}

void BatchedOptimizer::step_unless(const at::Tensor& found_inf) {
  if (!is_recordable()) return Optimizer::step_unless(found_inf);
  struct Forget {
    std::optional<at::Tensor>& value;
    ~Forget() { value.reset(); }
  } const forget{found_inf_};
  found_inf_ = found_inf;
  do_step(nullptr);
}

// A replayed update has advanced the tensor alone. On a GPU this waits for the device.
int64_t BatchedOptimizer::steps_done(const Batch& batch) const {
  const bool is_replayed = !batch.step_tensors.empty() && (recordable_ || !batch.step_tensors[0].is_cpu());
  return is_replayed ? batch.step_tensors[0].item().toLong() : batch.step;
}

void BatchedOptimizer::count_step(Batch& batch) {
  ++batch.step;
  if (batch.step_tensors.empty()) return;
  const at::Tensor& step = batch.step_tensors.front();
  if (step.is_cpu() && !recordable_) {
    *step.mutable_data_ptr<float>() = static_cast<float>(batch.step);
  } else {
    step.add_(1);  // an operator, so that a replay counts too
  }
}

// An update stopped by found_inf does not count.
void BatchedOptimizer::take_back_step(Batch& batch) {
  if (!found_inf_) return;
  if (!batch.step_tensors.empty() && (recordable_ || !found_inf_->is_cpu())) {
    batch.step_tensors.front().sub_(*found_inf_);
  } else if (!recordable_ && found_inf_->is_cpu() && found_inf_->item().toDouble() != 0) {
    --batch.step;
  }
}

void BatchedOptimizer::run(Batch& batch) {
  count_step(batch);
  send_learning_rate(batch);
  batch.found_inf = found_inf_;
  if (batch.pack) batch.pack->read_params();
  for (const size_t i : batch.copied) batch.params[i].copy_(slots_[batch.slots[i]].param);
  update(batch, groups_[batch.group]);
  take_back_step(batch);
  for (const size_t i : batch.copied) slots_[batch.slots[i]].param.copy_(batch.params[i]);
  if (batch.pack) batch.pack->write_params();
  // Autograd must notice that a parameter changed between forward and backward.
  for (auto* param : batch.sources) param->bump_version();
  batch.first = false;
  batch.found_inf.reset();
  batch.grads.clear();
}

void BatchedOptimizer::keep_progress() {
  for (const auto& batch : batches_) {
    const int64_t step = steps_done(batch);
    for (const size_t index : batch.slots) {
      slots_[index].step = step;
      slots_[index].product = batch.product;
    }
  }
}

void BatchedOptimizer::make_batches() {
  keep_progress();
  batches_.clear();
  idle_.clear();
  stale_ = true;
  ++version_;
  for (size_t i = 0; i < slots_.size(); ++i) {
    c10::TensorImpl* param = slots_[i].param.unsafeGetTensorImpl();
    if (param->grad().defined()) {
      add_to_batch(i);
    } else {
      idle_.push_back(param);
      for (auto& state : slots_[i].state) leave_pack(state);
    }
  }
  for (auto& batch : batches_) {
    if (batch.pack) pack_state(batch);
  }
  stale_ = false;
}

void BatchedOptimizer::add_to_batch(size_t index) {
  Slot& slot = slots_[index];
  slot.state.resize(state_names().size());
  const Group& group = groups_[slot.group];
  const bool packed = packs_small_tensors() && detail::TensorPack::takes(slot.param);
  const bool dense = slot.param.is_non_overlapping_and_dense();
  const at::Tensor param = dense ? slot.param : slot.param.contiguous();
  const size_t kind = kind_of(slot.param);
  bool first = slot.step == 0;
  for (size_t k = 0; k < slot.state.size(); ++k) {
    if (!uses_state(k, group, kind)) continue;
    if (slot.state[k].defined()) {
      check_shape(index, slot.state[k], "state");
      continue;
    }
    if (!packed) slot.state[k] = at::full_like(param, initial_state());
    first = true;
  }
  Batch& batch = batch_for(slot, param, first, packed);
  batch.slots.push_back(index);
  batch.sources.push_back(slot.param.unsafeGetTensorImpl());
  if (packed) return batch.pack->add(param);
  if (!dense) batch.copied.push_back(batch.params.size());
  if (has_step_tensor()) {
    batch.step_tensors.push_back(batch.step_tensors.empty() ? at::scalar_tensor(static_cast<double>(slot.step),
                                                                                param.options().dtype(at::kFloat))
                                                            : batch.step_tensors.front());
  }
  batch.params.push_back(param);
  for (size_t k = 0; k < slot.state.size(); ++k) {
    if (!uses_state(k, group, kind)) continue;
    leave_pack(slot.state[k]);
    batch.state[k].push_back(slot.state[k]);
  }
}

// The batch that the parameter belongs to, a new one if there is none yet.
BatchedOptimizer::Batch& BatchedOptimizer::batch_for(const Slot& slot, const at::Tensor& param, bool first,
                                                     bool packed) {
  const size_t kind = kind_of(slot.param);
  auto fits = [&](const Batch& batch) {
    const at::Tensor& other = slots_[batch.slots[0]].param;
    return batch.group == slot.group && batch.kind == kind && batch.first == first && batch.product == slot.product &&
           (batch.step == slot.step || !counts_steps()) && other.device() == param.device() &&
           other.dtype() == param.dtype() && batch.pack.has_value() == packed &&
           (!packed || batch.pack->has_room_for(param));
  };
  Batch* batch = nullptr;
  for (auto& known : batches_) {
    if (fits(known)) batch = &known;
  }
  if (batch != nullptr) return *batch;
  batch = &batches_.emplace_back();
  batch->group = slot.group;
  batch->kind = kind;
  batch->first = first;
  batch->product = slot.product;
  batch->step = slot.step;
  batch->had_momentum = groups_[slot.group].momentum != 0;
  batch->state.resize(slot.state.size());
  if (packed) batch->pack.emplace();
  if (recordable_ && (param.is_cpu() || (rounds_learning_rate() && param.scalar_type() != at::kDouble))) {
    batch->lr = at::scalar_tensor(0.0, param.options().dtype(param.is_cpu() ? at::kDouble : at::kFloat));
  }
  return *batch;
}

// Packs the parameters' state like the parameters; it is saved and loaded by parameter, through views.
void BatchedOptimizer::pack_state(Batch& batch) {
  batch.pack->make();
  batch.params = {batch.pack->params()};
  for (size_t k = 0; k < batch.state.size(); ++k) {
    if (!uses_state(k, groups_[batch.group], batch.kind)) continue;
    batch.state[k] = {batch.pack->make_flat(initial_state())};
    for (size_t i = 0; i < batch.slots.size(); ++i) {
      at::Tensor& state = slots_[batch.slots[i]].state[k];
      const at::Tensor part = batch.pack->part(batch.state[k][0], i);
      if (state.defined()) part.copy_(state);
      state = part;
    }
  }
}

StateLayout BatchedOptimizer::layout(const std::string& name) const {
  return name == product_name() ? StateLayout::scalar : Optimizer::layout(name);
}

State BatchedOptimizer::default_state_dict() const {
  State state;
  save_groups(state);
  std::vector<Slot> slots(slots_.begin(), slots_.end());
  for (const auto& batch : batches_) {
    const int64_t step = steps_done(batch);
    for (const size_t index : batch.slots) {
      slots[index].step = step;
      slots[index].product = batch.product;
    }
  }
  for (size_t i = 0; i < slots.size(); ++i) save_slot(slots[i], std::to_string(i) + ".", state);
  return state;
}

void BatchedOptimizer::save_slot(const Slot& slot, const std::string& prefix, State& state) const {
  if (slot.step == 0) return;
  const auto names = state_names();
  for (size_t k = 0; k < names.size(); ++k) {
    if (slot.state[k].defined()) state.tensors[prefix + names[k]] = slot.state[k];
  }
  if (!counts_steps()) return;
  state.tensors[prefix + "step"] = at::scalar_tensor(static_cast<double>(slot.step), at::kFloat);
  if (!product_name().empty()) state.tensors[prefix + product_name()] = at::scalar_tensor(slot.product, product_type());
}

void BatchedOptimizer::load_default_state_dict(const State& saved) {
  std::vector<Group> groups = saved_groups(saved);
  auto known = state_names();
  if (counts_steps()) known.push_back("step");
  if (!product_name().empty()) known.push_back(product_name());
  check_state_keys(saved, known);
  const at::NoGradGuard no_grad;
  std::deque<Slot> slots = slots_;
  std::swap(groups, groups_);  // whether a state is needed depends on the saved momentum
  try {
    for (size_t i = 0; i < slots.size(); ++i) load_slot(saved, i, slots[i]);
  } catch (...) {
    std::swap(groups, groups_);
    throw;
  }
  slots_ = std::move(slots);
  batches_.clear();
  idle_.clear();
  stale_ = true;
  ++version_;
}

void BatchedOptimizer::load_slot(const State& saved, size_t index, Slot& slot) const {
  const std::string prefix = std::to_string(index) + ".";
  const auto names = state_names();
  const auto next = saved.tensors.lower_bound(prefix);
  const bool present = next != saved.tensors.end() && next->first.starts_with(prefix);
  slot.state.assign(names.size(), at::Tensor());
  slot.step = 0;
  slot.product = 1;
  if (!present) return;  // never had a gradient
  for (size_t k = 0; k < names.size(); ++k) {
    const std::string key = prefix + names[k];
    if (!uses_state(k, groups_[slot.group], kind_of(slot.param)) && !saved.tensors.contains(key)) continue;
    slot.state[k] = at::empty_like(slot.param).copy_(saved_tensor(saved, key, slot.param.sizes()));
  }
  slot.step = counts_steps() ? saved_tensor(saved, prefix + "step").item().toLong() : 1;
  if (!product_name().empty()) slot.product = saved_tensor(saved, prefix + product_name()).item().toDouble();
}

}  // namespace levin
