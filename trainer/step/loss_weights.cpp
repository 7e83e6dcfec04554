#include "levin/trainer/step/loss_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_values.h"

namespace levin {

namespace {

// Returns the kind for the open window, or for the entire fit once ranks have agreed.
WeightKind kind_of(const StepCore& core) {
  return core.loss_weights.agreed != WeightKind::open ? core.loss_weights.agreed : core.window.weights.kind;
}

std::string batch_text(const StepCore& core) {
  return "batch " + std::to_string(core.place.batch_idx) + " of epoch " + std::to_string(core.place.epoch);
}

[[noreturn]] void refuse_mixture(const StepCore& core, const std::string& what) {
  const std::string others = core.has_peers() ? "of this fit, on all ranks," : "of its accumulation window";
  throw Error("training_step: " + batch_text(core) + " " + what + ", unlike others " + others +
              ". Call set_loss_weight for every batch that has a loss, or for none.");
}

// Numbers on the host are checked now; those on a device when the window ends, so that no rank waits.
void check_weight(const at::Tensor& weight) {
  if (!weight.defined() || weight.numel() != 1) {
    throw Error("set_loss_weight: a weight is one number, got " +
                (weight.defined() ? count_of(weight.numel(), "element") : std::string("no tensor")) +
                ". Sum it up first, e.g. mask.sum().");
  }
  if (!weight.is_cpu()) return;
  const double value = weight.item().toDouble();
  if (std::isfinite(value) && value >= 0) return;
  throw Error("set_loss_weight: a weight must be a finite number >= 0, got " + short_number(value) +
              ". Give what the batch's loss is a mean over, e.g. its number of tokens.");
}

// 2^k, close to the probable weight of the entire window. Reads the weight, once per fit.
double unit_for(const StepCore& core, const at::Tensor& weight, int64_t parts) {
  const double window = weight.item().toDouble() * static_cast<double>(parts * core.window.size);
  return std::isfinite(window) && window > 0 ? std::exp2(std::round(std::log2(window))) : 1;
}

bool is_zero_here(const at::Tensor& weight) {
  return weight.defined() && weight.is_cpu() && weight.item().toDouble() == 0;
}

// In float64, so that token counts add up exactly. An invalid weight makes the sum nan.
at::Tensor as_summand(const at::Tensor& weight) {
  const at::Tensor value = weight.detach().to(at::kDouble).reshape({});
  if (value.is_cpu()) return value;
  const at::Tensor bad = at::scalar_tensor(std::numeric_limits<double>::quiet_NaN(), value.options());
  return at::where(at::isfinite(value).logical_and(value.ge(0)), value, bad);
}

}  // namespace

void multiply_gradients(StepCore& core, double factor) {
  if (factor == 1) return;
  const at::NoGradGuard no_grad;
  for (auto& wrapped : core.optimizers) {
    const std::vector<at::Tensor> grads = gradients_of(wrapped.optimizer().parameters());
    if (!grads.empty()) at::_foreach_mul_(grads, factor);
  }
}

void note_loss_weight(StepCore& core, const at::Tensor& weight) {
  if (!core.module.automatic_optimization()) {
    throw Error(
        "set_loss_weight: with manual optimization training_step itself decides what a batch counts. Multiply the loss "
        "before manual_backward.");
  }
  if (core.step_graph != nullptr && core.settings.record_steps == RecordSteps::yes) {
    throw Error(
        "set_loss_weight: the sum of a window's weights is read by the host, which a recorded step cannot wait for. "
        "Turn TrainerOptions.record_steps off.");
  }
  check_weight(weight);
  context_of(core).set_loss_weight(weight);
}

at::Tensor take_loss_weight(StepCore& core) {
  return std::exchange(core.loss_weights.weight, at::Tensor());
}

at::Tensor weigh(StepCore& core, const at::Tensor& loss, const at::Tensor& weight, int64_t parts) {
  if (!loss.defined()) return loss;
  const WeightKind kind = weight.defined() ? WeightKind::weighted : WeightKind::plain, others = kind_of(core);
  if (others != WeightKind::open && others != kind) {
    refuse_mixture(core, weight.defined() ? "has a loss weight" : "has no loss weight");
  }
  WindowWeights& window = core.window.weights;
  window.kind = kind;
  if (kind == WeightKind::plain) return loss;
  if (is_zero_here(weight)) return {};
  double& unit = core.loss_weights.unit;
  if (unit == 0) unit = unit_for(core, weight, parts);
  const at::Tensor own = as_summand(weight);
  window.total = window.total.defined() ? window.total + own.to(window.total.device()) : own;
  return loss;
}

void agree_on_weights(StepCore& core, bool sync) {
  LossWeights& weights = core.loss_weights;
  const bool agreed = weights.agreed != WeightKind::open;
  if (!core.has_peers() || agreed || !(sync || core.strategy.sharding().has_sharded_weights())) return;
  const WeightKind own = core.window.weights.kind;
  const at::Tensor all = core.strategy.ranks().reduce(
      at::tensor({weights.unit, own == WeightKind::weighted ? 1.0 : 0.0, own == WeightKind::plain ? 1.0 : 0.0},
                 at::kDouble),
      ReduceOp::max);
  const auto* found = all.const_data_ptr<double>();
  if (found[1] > 0 && found[2] > 0) {
    refuse_mixture(core, "is the first that all ranks know of, and some of them say a loss weight and some do not");
  }
  if (found[1] == 0 && found[2] == 0) return;  // no rank has had a loss yet
  weights.agreed = found[1] > 0 ? WeightKind::weighted : WeightKind::plain;
  if (weights.agreed == WeightKind::plain) return;
  const double unit = found[0] > 0 ? found[0] : 1;
  if (weights.unit > 0) multiply_gradients(core, weights.unit / unit);
  weights.unit = unit;
}

at::Tensor counted_loss(const StepCore& core, const at::Tensor& loss, const at::Tensor& weight, double share) {
  if (!weight.defined()) {
    const auto window = static_cast<double>(core.window.size);
    if (share != 1) return loss * (share / window);
    return window > 1 ? loss / window : loss;
  }
  const double unit = core.loss_weights.unit;
  if (weight.is_cpu()) return loss * (weight.item().toDouble() / unit);
  return loss * (weight.reshape({}).to(loss.options()) / unit);
}

bool normalize_gradients(StepCore& core) {
  if (kind_of(core) != WeightKind::weighted) return false;
  const at::Tensor sum = core.window.weights.total;
  double total = sum.defined() ? sum.item().toDouble() : 0;
  if (core.has_peers()) {
    const at::Tensor own = at::scalar_tensor(total, at::kDouble);
    total = core.strategy.ranks().reduce(own, ReduceOp::sum).item().toDouble();
  }
  if (!std::isfinite(total)) {
    throw Error("set_loss_weight: a weight of the window that ends with " + batch_text(core) +
                " is negative or not a finite number. Give what the batch's loss is a mean over, e.g. its number of "
                "tokens.");
  }
  // The ranks' gradients were averaged. If the sum is 0, all gradients are zeros.
  const auto ranks = static_cast<double>(core.strategy.ranks().mesh().data().size());
  if (total > 0) multiply_gradients(core, core.loss_weights.unit * ranks / total);
  return true;
}

at::Tensor mean_of_shares(StepCore& core, const std::vector<at::Tensor>& losses, const std::vector<StepShare>& shares,
                          bool note) {
  std::vector<int64_t> sizes;
  at::Tensor sum, mean;
  bool weighted = false, plain = false;
  for (size_t k = 0; k < losses.size(); ++k) {
    sizes.push_back(shares[k].samples);
    if (!losses[k].defined()) continue;
    const at::Tensor& weight = shares[k].loss_weight;
    (weight.defined() ? weighted : plain) = true;
    if (!weight.defined() || is_zero_here(weight)) continue;
    const at::Tensor own = move_to(weight.reshape({}).to(at::kDouble), shares[0].slot);
    const at::Tensor part = move_to(losses[k], shares[0].slot) * own.to(losses[k].scalar_type());
    sum = sum.defined() ? sum + own : own;
    mean = mean.defined() ? mean + part : part;
  }
  if (weighted && plain) refuse_mixture(core, "has a loss weight in only some of its parts");
  if (!weighted) return mean_loss(losses, sizes, shares.empty() ? DeviceSlot() : shares[0].slot);
  if (note) note_loss_weight(core, sum.defined() ? sum : at::scalar_tensor(0.0, at::kDouble));
  return mean.defined() ? mean / sum.to(mean.scalar_type()) : mean;
}

// Between two windows there is only the unit.
void save_loss_weights(const StepCore& core, State& progress, bool in_batch, bool failing) {
  const LossWeights& weights = core.loss_weights;
  const bool has_agreed = !core.has_peers() || weights.agreed != WeightKind::open;
  const WeightKind kind = has_agreed ? kind_of(core) : weights.loaded;
  if (kind == WeightKind::open && (!has_agreed || weights.unit == 0)) return;
  progress.set("loss_weights", kind != WeightKind::plain);
  if (kind == WeightKind::plain) return;
  progress.set("loss_weight_unit", weights.unit);
  const at::Tensor sum = core.window.weights.total;
  double total = sum.defined() ? sum.item().toDouble() : 0;
  if (core.has_peers() && !failing) {
    total = core.strategy.ranks().reduce(at::scalar_tensor(total, at::kDouble), ReduceOp::mean).item().toDouble();
  }
  progress.set("loss_weight_total", in_batch ? 0.0 : total);
}

void load_loss_weights(StepCore& core, const State& progress) {
  core.loss_weights = {};
  WindowWeights& window = core.window.weights = {};
  if (!progress.has("loss_weights")) return;
  window.kind = progress.get<bool>("loss_weights") ? WeightKind::weighted : WeightKind::plain;
  core.loss_weights.loaded = window.kind;
  if (window.kind == WeightKind::plain) return;
  core.loss_weights.unit = progress.get<double>("loss_weight_unit");
  window.total = at::scalar_tensor(progress.get<double>("loss_weight_total"), at::kDouble);
}

}  // namespace levin
