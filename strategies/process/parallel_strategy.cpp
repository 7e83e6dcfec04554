#include "levin/strategies/process/parallel_strategy.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/strategies/process/sync_batch_norm.h"

namespace levin {

ParallelStrategy::ParallelStrategy(std::string backend, Seconds timeout, Seconds startup) {
  make<ProcessRanks>(std::move(backend), timeout, startup);
  make<RankPlacement>();
}
ParallelStrategy::ParallelStrategy(ParallelStrategy&&) noexcept = default;
ParallelStrategy::~ParallelStrategy() = default;

void ParallelStrategy::set_up_batch_norm(bool training) {
  auto* const placed = dynamic_cast<RankPlacement*>(&placement());
  if (!sync_batchnorm_ || !training || ranks().world_size() == 1) return;
  if (placed == nullptr || placed->module() == nullptr) {
    throw ConfigError(
        "TrainerOptions.sync_batchnorm: the strategy's placement was replaced by one that does not keep the module. "
        "Derive it from RankPlacement.");
  }
  batch_norm_ = std::make_shared<SyncBatchNorm>(process_ranks(ranks()).group("batch_norm"), *placed->module());
}

void ParallelStrategy::tear_down_batch_norm() {
  batch_norm_.reset();
}

void ParallelStrategy::begin_evaluation() {
  if (batch_norm_) batch_norm_->pause();
}

void ParallelStrategy::end_evaluation() {
  if (batch_norm_) batch_norm_->resume();
}

void RankPlacement::place(torch::nn::Module& module) {
  keep(module);
  DevicePlacement::place(module);
}

bool is_process_group_backend(const std::string& name) {
  return name == "auto" || name == "gloo" || name == "shm" || name == "nccl";
}

std::string sparse_gradient_text(const std::string& parameter) {
  return "the gradient of " + parameter +
         " is sparse, as with an Embedding with sparse(true), but only dense gradients can be reduced. Make the layer "
         "with sparse(false), or train on one device.";
}

}  // namespace levin
