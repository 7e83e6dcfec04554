#include "levin/strategies/device/data_parallel.h"

#include "levin/core/options/error.h"

namespace levin {

DataParallelCriterion::DataParallelCriterion(std::shared_ptr<ParallelApply> parallel, Criterion criterion)
    : parallel_(std::move(parallel)), criterion_(std::move(criterion)) {}

at::Tensor DataParallelCriterion::forward(const std::vector<at::Tensor>& outputs, const at::Tensor& target) {
  const auto& slots = parallel_->slots();
  if (outputs.empty() || outputs.size() > slots.size()) {
    throw Error("DataParallelCriterion: " + count_of(outputs.size(), "output") + " for " +
                count_of(slots.size(), "slot") + ". Pass it the outputs of a DataParallelModel on the same slots.");
  }
  std::vector<int64_t> sizes;
  for (const at::Tensor& output : outputs) sizes.push_back(output.dim() == 0 ? 1 : output.size(0));
  const auto targets = scatter(target, sizes, slots);
  std::vector<at::Tensor> losses(outputs.size());
  (*parallel_)(outputs.size(), [&](size_t k) { losses[k] = criterion_(outputs[k], targets[k]); });
  return mean_loss(losses, sizes, slots[0]);
}

}  // namespace levin
