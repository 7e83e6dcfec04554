#include "levin/strategies/process/sync_batch_norm.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/strategies/process/process_ranks.h"

namespace levin {

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

std::vector<int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

// (C) as (1, C, 1, …).
at::Tensor over_channels(const at::Tensor& values, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.reshape(shape);
}

// Sums are computed in float32 if the values are narrower.
at::Tensor widened(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

int64_t values_per_channel(const at::Tensor& x) {
  return x.size(1) > 0 ? x.numel() / x.size(1) : 0;
}

struct Statistics {
  at::Tensor mean, var;  // (C); var divides by count
  at::Tensor count;      // () float64, on their device: values per channel
};

// Reads it only if this rank's own values do not suffice: a step on a GPU does not wait.
void check_count(const at::Tensor& count, const at::Tensor& x) {
  if (values_per_channel(x) > 1) return;
  const double all = count.item<double>();
  if (all > 1) return;
  throw Error("sync_batchnorm: all ranks together have " + std::to_string(static_cast<int64_t>(all)) +
              " value per channel, which has no variance. Use larger batches.");
}

// The statistics over all ranks' values, combined from each rank's by the formula of Chan, Golub and LeVeque (1979).
Statistics statistics_of_all(const at::Tensor& x, const Group& group) {
  const int64_t channels = x.size(1);
  const int64_t own = values_per_channel(x);
  at::Tensor var = at::zeros({channels}, x.options());
  at::Tensor mean = at::zeros({channels}, x.options());
  if (own > 0) std::tie(var, mean) = at::var_mean(x, all_but_channels(x), /*correction=*/0);
  std::vector<at::Tensor> mine = {at::cat({mean, var, at::full({1}, static_cast<double>(own), x.options())})};
  std::vector<std::vector<at::Tensor>> theirs(1);
  for (int k = 0; k < group->getSize(); ++k) theirs[0].push_back(at::empty_like(mine[0]));
  wait_for(*group->allgather(theirs, mine), *group, "gathering the statistics of batches");
  const at::Tensor all = at::stack(theirs[0]);  // (ranks, 2 C + 1)
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  const at::Tensor means = all.narrow(1, 0, channels);
  Statistics whole;
  whole.count = counts.sum(at::kDouble);
  whole.mean = (means * counts).sum(0) / whole.count;
  whole.var = ((all.narrow(1, channels, channels) + (means - whole.mean).square()) * counts).sum(0) / whole.count;
  return whole;
}

// Unset also for an undefined tensor: autograd reads the device of every tensor that is passed to a Function.
using MaybeTensor = std::optional<at::Tensor>;
MaybeTensor if_defined(const MaybeTensor& tensor) {
  return tensor && tensor->defined() ? tensor : std::nullopt;
}

void move_running(const MaybeTensor& running, const at::Tensor& value, double momentum) {
  if (running) running->mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
}

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input, const MaybeTensor& weight,
                            const MaybeTensor& bias, const MaybeTensor& running_mean, const MaybeTensor& running_var,
                            double momentum, double eps, const Group& group) {
    const at::Tensor x = widened(input);
    const Statistics all = statistics_of_all(x, group);
    check_count(all.count, x);
    move_running(running_mean, all.mean, momentum);
    move_running(running_var, all.var * (all.count / (all.count - 1)), momentum);
    const at::Tensor scale = at::rsqrt(all.var + eps);
    at::Tensor y = (x - over_channels(all.mean, x)) * over_channels(scale, x);
    ctx->save_for_backward({input, weight.value_or(at::Tensor()), all.mean, scale, all.count});
    if (bias) ctx->saved_data["bias_type"] = bias->scalar_type();
    ctx->saved_data["group"] = c10::IValue::make_capsule(group);
    if (weight) y = y * over_channels(widened(*weight), x);
    if (bias) y = y + over_channels(widened(*bias), x);
    return y.to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor x = widened(saved[0]);
    const at::Tensor& count = saved[4];
    const auto group = c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(ctx->saved_data["group"].toCapsule());
    const at::Tensor dy = widened(grads[0]);
    const at::Tensor normal = (x - over_channels(saved[2], x)) * over_channels(saved[3], x);
    const auto dims = all_but_channels(x);
    const at::Tensor sum_dy = dy.sum(dims);
    const at::Tensor sum_dy_normal = (dy * normal).sum(dims);
    std::vector<at::Tensor> sums = {at::cat({sum_dy, sum_dy_normal})};
    wait_for(*group->allreduce(sums), *group, "reducing the gradients of batches' statistics");
    const auto of_all = (sums[0] / count).chunk(2);
    at::Tensor dx = dy - over_channels(of_all[0], x) - normal * over_channels(of_all[1], x);
    dx = dx * over_channels(weight.defined() ? saved[3] * widened(weight) : saved[3], x);
    at::Tensor dweight;
    at::Tensor dbias;
    if (weight.defined()) dweight = sum_dy_normal.to(weight.scalar_type());
    const auto bias_type = ctx->saved_data.find("bias_type");
    if (bias_type != ctx->saved_data.end()) dbias = sum_dy.to(bias_type->second.toScalarType());
    return {dx.to(saved[0].scalar_type()), dweight, dbias, {}, {}, {}, {}, {}};
  }
};

}  // namespace

SyncBatchNorm::SyncBatchNorm(Group group, const torch::nn::Module& module)
    : group_(std::move(group)), module_(module), scope_([this](const BatchNormCall& call) { return compute(call); }) {
  for (const auto& layer : module.modules(/*include_self=*/false)) {
    for (const at::Tensor& parameter : layer->parameters(/*recurse=*/false)) {
      layers_.emplace(parameter.unsafeGetTensorImpl(), layer.get());
    }
  }
}

std::optional<at::Tensor> SyncBatchNorm::compute(const BatchNormCall& call) const {
  if (!applies_to(call)) return std::nullopt;
  return Normalize::apply(call.input, if_defined(call.weight), if_defined(call.bias), if_defined(call.running_mean),
                          if_defined(call.running_var), call.momentum, call.eps, group_);
}

bool SyncBatchNorm::applies_to(const BatchNormCall& call) const {
  const auto layer = call.weight ? layers_.find(call.weight->unsafeGetTensorImpl()) : layers_.end();
  const bool is_other_run = layer == layers_.end() && call.input.is_cpu() && std::this_thread::get_id() != thread_;
  if (is_other_run || paused_) return false;
  return (layer != layers_.end() ? *layer->second : module_).is_training();
}

}  // namespace levin
