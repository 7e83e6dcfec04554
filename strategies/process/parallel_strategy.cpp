#include "levin/strategies/process/parallel_strategy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "levin/core/rank_status.h"
#include "levin/core/tensor_text.h"
#include "levin/strategies/accelerator.h"
#include "levin/strategies/launch/launcher.h"
#include "levin/strategies/process/place.h"
#include "levin/strategies/process/rank_difference.h"
#include "levin/strategies/process/sync_batch_norm.h"

namespace levin {

namespace {

constexpr size_t kBroadcastBytes = 250 << 20;  // sent together

std::chrono::milliseconds milliseconds(Seconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

std::string shapes_text(const ModuleTensors& module) {
  std::string text;
  for (const auto* named : {&module.parameters, &module.buffers}) {
    for (const auto& [name, tensor] : *named) {
      text += name + " " + shape_text(tensor.sizes()) + " " + c10::toString(tensor.scalar_type()) +
              (tensor.requires_grad() ? " trained" : "") + "\n";
    }
  }
  return text;
}

}  // namespace

ParallelStrategy::ParallelStrategy(std::string backend, Seconds timeout, Seconds startup)
    : backend_(std::move(backend)), timeout_(timeout), startup_timeout_(startup) {}
ParallelStrategy::ParallelStrategy(ParallelStrategy&&) noexcept = default;
ParallelStrategy::~ParallelStrategy() = default;

void ParallelStrategy::join(const World& world) {
  world_ = world;
  // Restarted ranks may wait for nodes that are gone; on the first start the others may still be starting.
  const Seconds patience = restarts_so_far() > 0 ? std::min(timeout_, startup_timeout_) : startup_timeout_;
  collectives_ = std::make_unique<Collectives>(world, milliseconds(patience));
  collectives_->set_timeout(milliseconds(startup_timeout_));
  if (!world.by_hand || world.size == 1) return;
  const auto machines = collectives_->gather(this_machine());  // on all ranks: some may have their places set
  if (!world.place_is_known) world_ = place_among(world, machines);
}

std::shared_ptr<DeviceCopier> ParallelStrategy::make_copier() {
  return device_.is_cpu() ? nullptr : accelerator(device_.type()).make_copier(device_);
}

ParallelStrategy::Group ParallelStrategy::group(const std::string& name) {
  return collectives_->group(name, backend_ == "auto" && device_.is_cuda() ? "nccl" : backend_, device_);
}

ParallelStrategy::Group ParallelStrategy::cpu_group(const std::string& name) {
  return collectives_->group(name, device_.is_cuda() || backend_ == "nccl" ? "gloo" : backend_, at::kCPU);
}

void ParallelStrategy::check_same_shapes(const ModuleTensors& module) {
  const auto different = first_difference(collectives_->gather(shapes_text(module)));
  if (!different) return;
  throw ConfigError(name() + ": the module differs between ranks: rank 0 has " + different->on_rank_zero + ", rank " +
                    std::to_string(different->rank) + " has " + different->on_rank +
                    ". Build it in the same way on every rank.");
}

void ParallelStrategy::broadcast_tensors(const Group& group, std::vector<at::Tensor> tensors) {
  if (tensors.empty()) return;
  const at::NoGradGuard no_grad;
  for (auto& tensor : tensors) tensor = tensor.detach();
  const RankWait waiting(self() + " waits for the others: rank 0's weights or buffers");
  c10d::broadcast_coalesced(group, tensors, kBroadcastBytes);
}

std::string ParallelStrategy::self() const {
  return rank_text(world_);
}

void ParallelStrategy::place(torch::nn::Module& module) {
  keep_module(module);
  Strategy::place(module);
}

void ParallelStrategy::set_up_batch_norm(bool training) {
  if (sync_batchnorm_ && training && world_.size > 1)
    batch_norm_ = std::make_unique<SyncBatchNorm>(group("batch_norm"), *module_root_);
}

void ParallelStrategy::tear_down_batch_norm() {
  batch_norm_.reset();
  module_root_ = nullptr;
}

void ParallelStrategy::begin_evaluation() {
  if (batch_norm_) batch_norm_->pause();
}

void ParallelStrategy::end_evaluation() {
  if (batch_norm_) batch_norm_->resume();
}

void ParallelStrategy::first_step_done() {
  if (std::exchange(first_step_, false)) collectives_->set_timeout(milliseconds(timeout_));
}

void ParallelStrategy::begin_first_step() {
  if (!first_step_) return;
  barrier();
  first_step_done();
}

at::Tensor ParallelStrategy::reduce(const at::Tensor& value, ReduceOp op) {
  return collectives_->reduce(value, op);
}

at::Tensor ParallelStrategy::sum_on_device(const at::Tensor& value) {
  if (device_.is_cpu()) return reduce_in_step(value, ReduceOp::sum);
  // The value's own device does not decide: a rank without a gradient has made a 0 on the CPU.
  std::vector<at::Tensor> sums = {value.detach().to(device_, /*non_blocking=*/false, /*copy=*/true)};
  const Group ranks = group("gradients");
  wait_for(*ranks->allreduce(sums), *ranks, "a reduction");
  return sums[0].to(value.device());
}

at::Tensor ParallelStrategy::reduce_in_step(const at::Tensor& value, ReduceOp op) {
  return collectives_->reduce_in_step(value, op);
}

bool ParallelStrategy::any(bool value) {
  if (world_.size == 1) return value;
  return collectives_->reduce(at::scalar_tensor(value ? 1.0 : 0.0), ReduceOp::max).item<float>() > 0;
}

void ParallelStrategy::barrier() {
  collectives_->barrier();
}

at::Tensor ParallelStrategy::gather(const at::Tensor& value) {
  return collectives_->gather(value);
}

std::vector<std::string> ParallelStrategy::gather(const std::string& text) {
  return collectives_->gather(text);
}

at::Tensor ParallelStrategy::gather_on_rank_zero(const at::Tensor& value) {
  return collectives_->gather_on_rank_zero(value);
}

std::string ParallelStrategy::merge_lines(const std::string& text) {
  return collectives_->merge_lines(text);
}

std::string ParallelStrategy::broadcast(const std::string& text) {
  return collectives_->broadcast(text);
}

void ParallelStrategy::copy_from_rank_zero(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  if (world_.size == 1) return;
  check_same_shapes({{}, named});
  broadcast_tensors(group("gradients"), tensors_of(named));
}

bool is_process_group_backend(const std::string& name) {
  return name == "auto" || name == "gloo" || name == "shm" || name == "nccl";
}

std::string sparse_gradient_text(const std::string& parameter) {
  return "the gradient of " + parameter +
         " is sparse, as with an Embedding with sparse(true), but only dense gradients can be reduced. Make the layer "
         "with sparse(false), or train on one device.";
}

std::vector<at::Tensor> tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace levin
