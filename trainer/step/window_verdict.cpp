#include "levin/trainer/step/window_verdict.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "levin/core/process/rank_status.h"
#include "levin/core/tensors.h"
#include "levin/precision/nonfinite.h"
#include "levin/strategies/device_copies.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "levin/trainer/step/check_recordable.h"
#include "levin/trainer/step/run_messages.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

// A sentence on what was found, and the beginning of a sentence on what the user can do about it.
struct NonFiniteFinding {
  std::string text;
  const char* advice;
};

namespace {

// The batches from which a loss, or a gradient, was computed.
struct LossPlace {
  int64_t epoch = 0;
  int64_t first_batch = 0;  // of its epoch
  int64_t last_batch = 0;
  int64_t global_step = 0;
};

double loss_value(const at::Tensor& loss) {
  if (loss.is_cpu() && loss.scalar_type() == at::kFloat) return *static_cast<const float*>(loss.const_data_ptr());
  if (loss.is_cpu() && loss.scalar_type() == at::kDouble) return *static_cast<const double*>(loss.const_data_ptr());
  return loss.item().toDouble();
}

std::string position_text(const LossPlace& place) {
  const std::string last = std::to_string(place.last_batch);
  const bool is_one = place.first_batch == place.last_batch;
  return " in epoch " + std::to_string(place.epoch) + ", " +
         (is_one ? "batch " + last : "one of batches " + std::to_string(place.first_batch) + " to " + last) +
         ", global step " + std::to_string(place.global_step);
}

NonFiniteFinding bad_loss(const LossPlace& place, double value) {
  const std::string text = std::isfinite(value) ? "not finite on another rank"
                           : std::isnan(value)  ? "nan"
                           : value > 0          ? "inf"
                                                : "-inf";
  return {"training_step: the loss is " + text + position_text(place) + ".",
          "Look at that batch, lower the learning rate, clip gradients, or set"};
}

// `which`: a clause.
NonFiniteFinding bad_gradient(const LossPlace& place, const std::string& which) {
  return {
      "backward: " + which + position_text(place) + ", although the loss is finite.",
      "sqrt, norm, pow, log and a division have no finite derivative at 0, also in elements that where() leaves out; "
      "detect_anomaly names the operation. Fix it, look at that batch, or set"};
}

NonFiniteFinding changed_gradient(const LossPlace& place, const std::string& which) {
  return {"on_before_optimizer_step or configure_gradient_clipping: " + which + position_text(place) +
              ", although it was finite before.",
          "Look at what the module and its callbacks do there (a division by a norm of 0?), or set"};
}

at::Tensor strided(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient._values();
}

// Names the first parameter whose gradient is the reason, if it is on this rank.
std::string which_gradient(const LightningModule& module) {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().grad().defined()) continue;
    const at::Tensor gradient = strided(item.value().grad().detach());
    if (!has_nonfinite(gradient)) continue;
    return "the gradient of " + item.key() + " is " + (gradient.isnan().any().item<bool>() ? "nan" : "inf");
  }
  return "a gradient is nan or inf";
}

// Returns the position of the running batch alone.
LossPlace batch_place(const StepCore& core) {
  const int64_t batch = core.place.batch_idx;
  return {core.place.epoch, batch, batch, core.counters.global_step};
}

[[noreturn]] void stop(const NonFiniteFinding& found) {
  throw NonFiniteLossError(found.text + " Nothing was updated with it. " + found.advice +
                           " TrainerOptions.nonfinite_loss to skip, rollback or ignore.");
}

// Returns the positions of the running window's losses.
LossPlace loss_place(const StepCore& core) {
  LossPlace place = batch_place(core);
  if (core.window.seen > 1) place.first_batch = core.window.first_batch;
  return place;
}

}  // namespace

// One operator, where isfinite() is five. Multiplied by one, the loss is unchanged.
void mark_if_not_finite(at::Tensor flag, const at::Tensor& loss) {
  at::_amp_foreach_non_finite_check_and_unscale_(loss, flag, at::ones({}, flag.options()));
}

namespace {

// Sets `flag`, () float32, to 1 if a gradient of `optimizer` is nan or inf; else leaves it. `one`: () float32 on the
// same device. Does not block.
void mark_nonfinite_gradients(at::Tensor flag, const at::Tensor& one, const Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  auto kinds = gradients_by_kind(optimizer.parameters());
  for (auto& grads : kinds) {
    for (at::Tensor& grad : grads) grad = strided(grad);
    // CUDA's operator does not take bfloat16. The sum of the magnitudes is nan or inf if one of them is.
    const bool is_known = grads[0].is_cpu() || grads[0].scalar_type() != at::kBFloat16;
    if (!is_known) grads = {at::stack(at::_foreach_norm(grads, 1)).to(at::kFloat)};
  }
  scale_and_check(kinds, flag, one);
}

// () float32: 1 if a gradient of `optimizer` on this rank is nan or inf, else 0. Does not block.
at::Tensor nonfinite_flag(const Optimizer& optimizer, const at::TensorOptions& number) {
  at::Tensor flag = at::zeros({}, number);
  mark_nonfinite_gradients(flag, at::ones({}, number), optimizer);
  return flag;
}

at::TensorOptions number_on_device(const StepCore& core) {
  return at::TensorOptions(at::kFloat).device(core.strategy.placement().device());
}

}  // namespace

/// Copies of a module's floating-point buffers at the beginning of an accumulation window. A batch whose inputs contain
/// nan would otherwise leave nan in running statistics (BatchNorm), although its update is skipped.
class KeptBuffers {
 public:
  /// Null if the policy is not to skip, or if the module has no such buffer.
  [[nodiscard]] static std::shared_ptr<KeptBuffers> make(const StepCore& core);

  explicit KeptBuffers(std::vector<at::Tensor> buffers);
  /// Saves the buffers at the beginning of a window. Does not block on a device.
  void save();
  /// Buffers that are nan or inf, and were finite when they were saved, get the saved values. Blocks on a device.
  void restore_nonfinite();
  /// Restores at the window's end the buffers that restore_nonfinite has restored: a batch of the window was not
  /// finite, which may have been found late, so none of its batches counts.
  void end_window();

 private:
  std::vector<at::Tensor> buffers_, saved_;
  std::vector<size_t> restored_ = {};
};

// Checks a window's loss and gradients on a device while the device computes the next window: with nonfinite_loss:
// stop, the host has nothing to decide before that.
//
// Note [Late checks]
// The device itself leaves out the update of a window whose loss or gradient is not finite (Optimizer::step_unless).
// The host learns of it before it launches the next update, or before anything is to be kept: a checkpoint, a
// validation, the end of an epoch. So nothing is ever updated with such a loss, and no state is kept that counts its
// update; the error comes one window later, and names the batch. With several ranks the same flag comes from what they
// sent with their gradients, and the host receives the rest of it (a stop, a signal) one window later too, all ranks at
// the same place. A recorded window is launched as a whole, with its update, before the host reads the one before, or
// the device would wait for that: its flag also holds the flags of all windows before, so after such a loss nothing is
// updated.

class LateCheck {
 public:
  /// Null if there is none, or if it must be made at once: on a CPU, which waits for nothing; with one rank that
  /// ignores it; with a policy that skips or goes back, or a loss scaler, where the host acts on the result; with
  /// several ranks whose flags do not stay on the device; and if something before the update, or the update, is host
  /// code.
  [[nodiscard]] static std::shared_ptr<LateCheck> make(const StepCore& core);

  explicit LateCheck(at::Device device);

  /// () float32 on the device: 1 if `loss`, () the window's sum of losses, or one that was seen before is not finite,
  /// else 0. Does not block. The loss is unchanged.
  [[nodiscard]] const at::Tensor& flag(const at::Tensor& loss);
  /// 1 if one of all ranks' losses is not finite, from the flags that they sent with the window's gradients:
  /// (kRankFlags) on the device.
  [[nodiscard]] static at::Tensor flag_of_ranks(const at::Tensor& received_flags);
  /// Returns the same flag, or 1 if it was 1 before: for recorded steps.
  [[nodiscard]] const at::Tensor& kept_flag_of_ranks(const at::Tensor& received_flags);
  /// Also sets `flag`, from one of the functions above, to 1 if a gradient of the window that the policy does not
  /// ignore is not finite on any rank. Does not block. Every rank calls it.
  void add_gradients(const StepCore& core, at::Tensor flag) const;
  /// Returns (2) float64: the loss and the flag of a recorded step, which begin() reads together instead of the loss
  /// alone.
  [[nodiscard]] static at::Tensor with_flag(const at::Tensor& loss, const at::Tensor& flag);
  /// Begins the check of a window whose update was launched. `flag`: what the update was given; `loss`: () the window's
  /// sum of losses, or with_flag(), which is read before the next replay writes to it; `received_flags`: of all ranks,
  /// undefined with a single one. Does not block.
  void begin(const StepCore& core, const at::Tensor& flag, const at::Tensor& loss, const at::Tensor& received_flags);
  /// Does nothing if no check is open. Blocks until the device has computed that window. Throws NonFiniteLossError.
  void finish();
  /// Returns, once, the other flags of windows that were finished.
  [[nodiscard]] RankFlags take_received_flags() { return std::exchange(received_flags_, RankFlags()); }

 private:
  at::Tensor flag_, one_;  // of the device; made once, because each of them would be a kernel in every step
  LateRead flag_read_;     // or of with_flag()
  LateRead flags_read_;    // of all ranks
  at::Tensor loss_ = {};   // of the open window, not recorded: read if something in it is not finite
  bool reads_flags_ = false;
  RankFlags received_flags_ = {};
  std::optional<LossPlace> open_ = std::nullopt;
};

std::shared_ptr<KeptBuffers> KeptBuffers::make(const StepCore& core) {
  if (core.settings.nonfinite_loss != NonFiniteLoss::skip) return nullptr;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : core.module.buffers()) {
    const bool may_be_nan = buffer.defined() && buffer.is_floating_point() && buffer.layout() == at::kStrided;
    if (may_be_nan && buffer.numel() > 0) buffers.push_back(buffer.detach());
  }
  return buffers.empty() ? nullptr : std::make_shared<KeptBuffers>(std::move(buffers));
}

KeptBuffers::KeptBuffers(std::vector<at::Tensor> buffers) : buffers_(std::move(buffers)) {
  for (const at::Tensor& buffer : buffers_) saved_.push_back(buffer.clone());
}

void KeptBuffers::save() {
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(saved_, buffers_);
}

void KeptBuffers::restore_nonfinite() {
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < buffers_.size(); ++k) {
    if (!has_nonfinite(buffers_[k].cpu()) || has_nonfinite(saved_[k].cpu())) continue;
    buffers_[k].copy_(saved_[k]);
    restored_.push_back(k);
  }
}

void KeptBuffers::end_window() {
  const at::NoGradGuard no_grad;
  for (const size_t k : restored_) buffers_[k].copy_(saved_[k]);
  restored_.clear();
}

namespace {

// Returns whether the host acts on the result at once, or has nothing to read late: a single rank that ignores it.
bool acts_at_once(const StepCore& core) {
  const NonFiniteLoss policy = core.settings.nonfinite_loss;
  return policy == NonFiniteLoss::skip || policy == NonFiniteLoss::rollback ||
         (policy == NonFiniteLoss::ignore && !core.has_peers()) || core.precision.scaler() != nullptr ||
         (core.has_peers() && !core.strategy.recorder().has_flags_on_device()) || !core.module.automatic_optimization();
}

}  // namespace

// The result is the same on all ranks: they have the same options, callbacks and module.
std::shared_ptr<LateCheck> LateCheck::make(const StepCore& core) {
  const at::Device device = core.strategy.placement().device();
  const bool acts = acts_at_once(core);
  if (device.is_cpu() || acts || core.optimizers.size() != 1 || updates_on_host(core)) return nullptr;
  const auto parameters = core.optimizers[0].shared()->parameters();
  const bool is_one_device = std::all_of(parameters.begin(), parameters.end(), [&](const at::Tensor& parameter) {
    return parameter.device() == device;  // as the flag
  });
  return is_one_device ? std::make_shared<LateCheck>(device) : nullptr;
}

LateCheck::LateCheck(at::Device device) {
  const auto number = at::TensorOptions(at::kFloat).device(device);
  flag_ = at::zeros({}, number);
  one_ = at::ones({}, number);
}

// The operator sets the flag and never clears it. It need not be: the first loss that sets it ends the run.
const at::Tensor& LateCheck::flag(const at::Tensor& loss) {
  const at::NoGradGuard no_grad;
  at::_amp_foreach_non_finite_check_and_unscale_(loss, flag_, one_);
  return flag_;
}

// Kernels that take the flag compare it to 1; ranks' flags come as their sum or, with the gradients, as their mean.
at::Tensor LateCheck::flag_of_ranks(const at::Tensor& received_flags) {
  return received_flags.select(0, static_cast<int64_t>(RankFlag::nonfinite_loss)).sign().to(at::kFloat);
}

const at::Tensor& LateCheck::kept_flag_of_ranks(const at::Tensor& received_flags) {
  at::maximum_out(flag_, flag_, flag_of_ranks(received_flags));
  return flag_;
}

void LateCheck::add_gradients(const StepCore& core, at::Tensor flag) const {
  if (!core.verdict->checks_gradients()) return;
  mark_nonfinite_gradients(flag, one_, *core.optimizers[0].shared());
  if (core.strategy.sharding().has_sharded_gradients()) flag.copy_(core.strategy.ranks().sum_on_device(flag).sign_());
}

at::Tensor LateCheck::with_flag(const at::Tensor& loss, const at::Tensor& flag) {
  return at::stack({loss.reshape({}).to(at::kDouble), flag.to(at::kDouble)});
}

void LateCheck::begin(const StepCore& core, const at::Tensor& flag, const at::Tensor& loss,
                      const at::Tensor& received_flags) {
  reads_flags_ = received_flags.defined();
  if (reads_flags_) flags_read_.begin(received_flags);
  const bool reads_both = loss.defined() && loss.dim() == 1;
  flag_read_.begin(reads_both ? loss : flag);
  loss_ = reads_both ? at::Tensor() : loss;
  open_ = loss_place(core);
}

void LateCheck::finish() {
  if (!open_) return;
  const LossPlace place = *std::exchange(open_, std::nullopt);
  const at::Tensor& read = flag_read_.wait();
  if (reads_flags_) received_flags_ |= flags_of(flags_read_.wait());
  const at::Tensor loss = read.dim() == 1 ? read[0] : std::exchange(loss_, at::Tensor());
  const bool found = (read.dim() == 1 ? read[1] : read).item().toDouble() != 0;
  const bool of_loss = received_flags_.take(RankFlag::nonfinite_loss);
  if (!found && !of_loss) return;
  const double value = loss.defined() ? loss.item().toDouble() : 0;
  if (of_loss || !std::isfinite(value)) stop(bad_loss(place, value));
  stop(bad_gradient(place, "a gradient is nan or inf"));
}

std::string device_wait_text(const StepCore& core) {
  if (!core.has_peers()) return "";
  return rank_text(core.strategy.ranks().rank(), core.strategy.ranks().world_size()) +
         " waits for its device, which waits for the others' gradients";
}

namespace {

// Returns whether ranks have received the flag about losses with the gradients.
bool has_received_flags(const StepCore& core) {
  return core.has_peers() &&
         (core.strategy.placement().device().is_cpu() || core.strategy.recorder().has_flags_on_device());
}

// A recorded step has received them with its gradients, which are the same on all ranks.
bool flags_are_known_to_all(const StepCore& core) {
  return !core.has_peers() || core.recording != nullptr;
}

at::Tensor read_flags(const StepCore& core, const at::Tensor& flags) {
  if (flags.is_cpu()) return flags;
  const RankWait waiting(device_wait_text(core));
  return flags.cpu();
}

}  // namespace

WindowVerdict::WindowVerdict(StepCore& core) : core_(core) {}

WindowVerdict::~WindowVerdict() = default;

void WindowVerdict::begin() {
  kept_buffers_ = KeptBuffers::make(core_);
  late_check_ = LateCheck::make(core_);
}

void WindowVerdict::end() {
  kept_buffers_.reset();
  late_check_.reset();
}

void WindowVerdict::open_window() {
  if (kept_buffers_ != nullptr) kept_buffers_->save();
}

void WindowVerdict::close_window() {
  if (kept_buffers_ != nullptr) kept_buffers_->end_window();
}

at::Tensor WindowVerdict::late_flag(const at::Tensor& loss, const at::Tensor& received) {
  at::Tensor flag;
  if (received.defined()) {
    flag = core_.recording != nullptr ? late_check_->kept_flag_of_ranks(received) : LateCheck::flag_of_ranks(received);
  } else if (loss.defined()) {
    flag = late_check_->flag(loss);
  }
  if (flag.defined()) late_check_->add_gradients(core_, flag);
  return flag;
}

at::Tensor WindowVerdict::with_late_flag(const at::Tensor& loss, const at::Tensor& flag) {
  return LateCheck::with_flag(loss, flag);
}

void WindowVerdict::begin_late_check(const at::Tensor& flag, const at::Tensor& loss, const at::Tensor& received) {
  late_check_->begin(core_, flag, loss, received);
}

void WindowVerdict::act(const NonFiniteFinding& found) {
  const NonFiniteLoss policy = core_.settings.nonfinite_loss;
  if (policy == NonFiniteLoss::stop) stop(found);
  core_.window.has_nonfinite_loss = true;
  ++nonfinite_losses_;
  if (kept_buffers_ != nullptr) kept_buffers_->restore_nonfinite();
  if (policy == NonFiniteLoss::skip) warn_of_run(found.text + " Its update is skipped.");
  if (policy == NonFiniteLoss::rollback) rollback_due_ = found.text;
}

// Returns whether the window's end will judge only this loss, and nothing will write to it: then it needs no copy,
// which would be a kernel in every step.
bool WindowVerdict::is_whole_window(const at::Tensor& loss) const {
  return late_check_ != nullptr && core_.step_graph == nullptr && core_.window.size == 1 &&
         loss.scalar_type() == at::kFloat;
}

bool WindowVerdict::add_and_read(const at::Tensor& loss) {
  if (core_.settings.nonfinite_loss == NonFiniteLoss::ignore) return true;
  const double value = loss.defined() ? loss_value(loss) : 0;
  // Ranks must agree; a single one need not.
  const bool finite = core_.has_peers() ? !core_.strategy.ranks().any(!std::isfinite(value)) : std::isfinite(value);
  if (!finite) act(bad_loss(batch_place(core_), value));
  return finite;
}

bool WindowVerdict::defers_losses() const {
  const bool waits = !core_.strategy.placement().device().is_cpu() || core_.precision.scaler() != nullptr ||
                     core_.has_peers() || core_.recording != nullptr;
  return waits && core_.settings.nonfinite_loss != NonFiniteLoss::ignore;
}

bool WindowVerdict::add(const at::Tensor& loss) {
  if (!defers_losses()) return add_and_read(loss);
  // The sum is not finite if one of them is not; in double precision finite ones do not overflow.
  // In place, in a separate tensor: when steps are captured, all batches of a window must use the same memory.
  if (core_.window.unread_loss.defined()) {
    core_.window.unread_loss.add_(loss.detach().reshape({}));
  } else if (is_whole_window(loss)) {
    // Not detach(): what checks it writes to it, though the same value, and backward may need the loss.
    core_.window.unread_loss = loss.variable_data().reshape({});
  } else {
    core_.window.unread_loss = loss.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).reshape({});
  }
  // Sent with the gradients; a device is read at the end of the window, and a recorded step finds out by itself.
  if (!core_.has_peers() || !loss.is_cpu() || core_.recording != nullptr) return true;
  if (!std::isfinite(loss_value(core_.window.unread_loss))) core_.to_send.add(RankFlag::nonfinite_loss);
  return true;
}

void WindowVerdict::act_on_loss(double value) {
  act(bad_loss(loss_place(core_), value));
}

bool WindowVerdict::checks_gradients() const {
  return core_.settings.nonfinite_loss != NonFiniteLoss::ignore && core_.precision.scaler() == nullptr;
}

bool WindowVerdict::has_nonfinite_gradient(const Optimizer& optimizer) const {
  if (!core_.strategy.placement().device().is_cpu())
    return nonfinite_flag(optimizer, number_on_device(core_)).item().toDouble() != 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params) {
      const at::Tensor& gradient = parameter.unsafeGetTensorImpl()->grad();
      if (gradient.defined() && has_nonfinite(strided(gradient))) return true;
    }
  }
  return false;
}

at::Tensor WindowVerdict::nonfinite_gradients(const Optimizer& optimizer) const {
  if (!checks_gradients()) return {};
  const at::TensorOptions number = number_on_device(core_);
  if (!core_.strategy.placement().device().is_cpu() || core_.recording != nullptr)
    return nonfinite_flag(optimizer, number);
  const bool found = has_nonfinite_gradient(optimizer);
  if (!found && !core_.strategy.sharding().has_sharded_gradients()) return {};
  return found ? at::ones({}, number) : at::zeros({}, number);
}

void WindowVerdict::act_on_gradient() {
  act(bad_gradient(loss_place(core_), which_gradient(core_.module)));
}

void WindowVerdict::act_on_changed_gradient() {
  act(changed_gradient(loss_place(core_), which_gradient(core_.module)));
}

bool WindowVerdict::keeps_gradients(const State& gradients, bool failing) {
  if (!core_.window.is_open || core_.window.has_nonfinite_loss || !checks_gradients()) return true;
  bool found = std::any_of(gradients.tensors.begin(), gradients.tensors.end(),
                           [](const auto& named) { return has_nonfinite(strided(named.second)); });
  if (core_.has_peers() && !failing) found = core_.strategy.ranks().any(found);
  if (!found) return true;
  if (failing) core_.window.has_nonfinite_loss = true;
  if (!failing) act_on_gradient();
  return false;
}

void WindowVerdict::receive_on_device(const at::Tensor& received_flags) {
  if (late_check_ != nullptr) {
    core_.window.received = received_flags;
    return;
  }
  core_.hooks.device_is_busy();  // the device has the step to compute meanwhile
  const RankWait waiting(device_wait_text(core_));
  core_.receive(flags_of(received_flags));
}

void WindowVerdict::finish_late_check() const {
  if (late_check_ != nullptr) late_check_->finish();
}

void WindowVerdict::finish_late_check_and_receive() {
  if (late_check_ == nullptr) return;
  const RankWait waiting(device_wait_text(core_));
  late_check_->finish();
  core_.receive(late_check_->take_received_flags());
}

// Applies the policy to what was found in a window.
WindowResult WindowVerdict::act_on_flags(bool of_loss, bool of_gradient, const at::Tensor& loss) {
  if (of_loss) act_on_loss(loss.defined() ? loss.item().toDouble() : 0);
  if (of_loss) return WindowResult::nonfinite;
  if (!of_gradient) return WindowResult::good;
  if (core_.precision.scaler() != nullptr) return WindowResult::overflow;
  act_on_gradient();
  return WindowResult::nonfinite;
}

// Called on ranks that have received the flags. Their reduced gradients are the same, unless they are sharded.
WindowResult WindowVerdict::decide_by_received_flags(const at::Tensor& loss, at::Tensor found_inf) {
  if (found_inf.defined() && core_.strategy.sharding().has_sharded_gradients()) {
    found_inf = core_.strategy.ranks().sum_on_device(found_inf);
  }
  const bool of_loss = core_.received.take(RankFlag::nonfinite_loss);
  return act_on_flags(of_loss, found_inf.defined() && found_inf.item().toDouble() != 0, loss);
}

// () of `flag`'s type: 1 if a loss of the window, on any rank whose flags were received, is not finite.
at::Tensor WindowVerdict::nonfinite_loss_flag(const at::Tensor& loss, const at::TensorOptions& flag) {
  const StepNotes* notes = core_.recording;
  if (notes != nullptr && notes->received_flags.defined()) {
    return notes->received_flags.select(0, static_cast<int64_t>(RankFlag::nonfinite_loss)).gt(0).to(flag);
  }
  // Without a loss of its own the rank has received them as in an eager step; such a step is not replayed.
  if (notes != nullptr && core_.received.take(RankFlag::nonfinite_loss)) return at::ones({}, flag);
  at::Tensor found = at::zeros({}, flag);
  if (loss.defined()) mark_if_not_finite(found, loss);  // recorded steps have it too
  return found;
}

at::Tensor WindowVerdict::decision_flags(const at::Tensor& loss, const at::Tensor& found_inf) {
  // All ranks take part, also one without a loss in this batch.
  const bool asked = found_inf.defined() || (core_.has_peers() ? defers_losses() : loss.defined());
  if (!asked) return {};
  const at::NoGradGuard no_grad;
  const auto flag = at::TensorOptions(at::kFloat).device(core_.strategy.placement().device());
  at::Tensor flags = nonfinite_loss_flag(loss, flag);
  if (found_inf.defined()) flags = at::stack({flags, found_inf.reshape({}).to(flag)});
  return flags_are_known_to_all(core_) ? flags : core_.strategy.ranks().reduce(flags, ReduceOp::max);
}

WindowResult WindowVerdict::decide_by_flags(const at::Tensor& flags, const at::Tensor& loss,
                                            const at::Tensor& received_flags) {
  core_.hooks.device_is_busy();  // the device has the step to compute meanwhile
  if (late_check_ != nullptr) {
    finish_late_check_and_receive();  // of the window before
    late_check_->begin(core_, flags, loss, received_flags);
    return WindowResult::good;
  }
  const at::Tensor here = read_flags(core_, flags);
  const auto* read = static_cast<const float*>(here.const_data_ptr());
  return act_on_flags(read[0] != 0, here.numel() > 1 && read[1] != 0, loss);
}

WindowResult WindowVerdict::decide(const at::Tensor& found_inf) {
  const at::Tensor loss = std::exchange(core_.window.unread_loss, at::Tensor());
  if (has_received_flags(core_)) return decide_by_received_flags(loss, found_inf);
  const at::Tensor flags = decision_flags(loss, found_inf);
  return flags.defined() ? decide_by_flags(flags, loss, /*received_flags=*/{}) : WindowResult::good;
}

}  // namespace levin
