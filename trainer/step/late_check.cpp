#include "levin/trainer/step/late_check.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "levin/core/rank_status.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/check_recordable.h"

namespace levin {

namespace {

// Whether the host acts on what the check finds, or has nothing to read late: a single rank that ignores it.
bool acts_at_once(const Run& run) {
  const NonFiniteLoss policy = run.fit.nonfinite_loss;
  return policy == NonFiniteLoss::skip || policy == NonFiniteLoss::rollback ||
         (policy == NonFiniteLoss::ignore && !run.has_peers()) || run.precision->scaler() != nullptr ||
         (run.has_peers() && !run.strategy->has_notes_on_device()) || !run.entry.module->automatic_optimization();
}

}  // namespace

// The same on all ranks: they have the same options, callbacks and module.
std::shared_ptr<LateCheck> LateCheck::make(const Run& run) {
  const at::Device device = run.strategy->device();
  const bool acts = acts_at_once(run);
  if (device.is_cpu() || acts || run.fit.optimizers.size() != 1 || leaves_updates(run)) return nullptr;
  const auto parameters = run.fit.optimizers[0].shared()->parameters();
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
at::Tensor LateCheck::flag_of_ranks(const at::Tensor& heard) {
  return heard.select(0, static_cast<int64_t>(RankNote::nonfinite_loss)).sign().to(at::kFloat);
}

const at::Tensor& LateCheck::kept_flag_of_ranks(const at::Tensor& heard) {
  at::maximum_out(flag_, flag_, flag_of_ranks(heard));
  return flag_;
}

void LateCheck::add_gradients(const Run& run, at::Tensor flag) const {
  if (!checks_gradients(run)) return;
  mark_nonfinite_gradients(flag, one_, *run.fit.optimizers[0].shared());
  if (run.strategy->has_sharded_gradients()) flag.copy_(run.strategy->sum_on_device(flag).sign_());
}

at::Tensor LateCheck::with_flag(const at::Tensor& loss, const at::Tensor& flag) {
  return at::stack({loss.reshape({}).to(at::kDouble), flag.to(at::kDouble)});
}

void LateCheck::begin(const Run& run, const at::Tensor& flag, const at::Tensor& loss, const at::Tensor& heard) {
  reads_notes_ = heard.defined();
  if (reads_notes_) notes_read_.begin(heard);
  const bool reads_both = loss.defined() && loss.dim() == 1;
  flag_read_.begin(reads_both ? loss : flag);
  loss_ = reads_both ? at::Tensor() : loss;
  open_ = loss_place(run);
}

void LateCheck::finish() {
  if (!open_) return;
  const LossPlace place = *std::exchange(open_, std::nullopt);
  const at::Tensor& read = flag_read_.wait();
  if (reads_notes_) heard_ |= notes_of(notes_read_.wait());
  const at::Tensor loss = read.dim() == 1 ? read[0] : std::exchange(loss_, at::Tensor());
  const bool found = (read.dim() == 1 ? read[1] : read).item().toDouble() != 0;
  const bool of_loss = heard_.take(RankNote::nonfinite_loss);
  if (!found && !of_loss) return;
  const double value = loss.defined() ? loss.item().toDouble() : 0;
  if (of_loss || !std::isfinite(value)) stop_for_loss(place, value);
  stop_for_gradient(place);
}

std::string device_wait_text(const Run& run) {
  if (!run.has_peers()) return "";
  return rank_text(run.strategy->rank(), run.strategy->world_size()) +
         " waits for its device, which waits for the others' gradients";
}

void hear_device(Run& run, const at::Tensor& heard) {
  if (run.fit.late_check != nullptr) {
    run.fit.epoch.window.heard = heard;
    return;
  }
  if (run.fit.batches != nullptr) run.fit.batches->send_ahead();  // the device has the step to compute meanwhile
  const RankWait waiting(device_wait_text(run));
  hear(run.entry, run.fit, notes_of(heard));
}

void finish_late_check(const Fit& fit) {
  if (fit.late_check != nullptr) fit.late_check->finish();
}

void finish_late_check_and_hear(Run& run) {
  if (run.fit.late_check == nullptr) return;
  const RankWait waiting(device_wait_text(run));
  run.fit.late_check->finish();
  hear(run.entry, run.fit, run.fit.late_check->take_heard());
}

}  // namespace levin
