#include "levin/trainer/run/averaging_optimizers.h"

#include <c10/core/GradMode.h>

#include <map>
#include <string>
#include <vector>

#include "levin/optim/averaging_optimizer.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"

namespace levin {

namespace {

std::vector<AveragingOptimizer*> averaging_optimizers(Run& run) {
  std::vector<AveragingOptimizer*> found;
  for (auto& wrapped : run.fit.optimizers()) {
    if (auto* averaging = dynamic_cast<AveragingOptimizer*>(&wrapped.optimizer())) found.push_back(averaging);
  }
  return found;
}

}  // namespace

AverageScope::AverageScope(Run& run, bool inside_fit) : run_(inside_fit ? &run : nullptr) {
  if (run_ == nullptr) return;
  for (auto* optimizer : averaging_optimizers(run)) optimizer->eval();
}

AverageScope::~AverageScope() {
  if (run_ == nullptr) return;
  for (auto* optimizer : averaging_optimizers(*run_)) optimizer->train();
}

void keep_averages(Run& run) {
  for (auto* optimizer : averaging_optimizers(run)) optimizer->eval();
}

void put_averages(Run& run, State& checkpoint, bool weights_only) {
  const auto optimizers = averaging_optimizers(run);
  if (optimizers.empty()) return;
  std::map<const c10::TensorImpl*, std::string> names;
  for (const auto& item : run.entry.module->named_parameters()) {
    names[item.value().unsafeGetTensorImpl()] = item.key();
  }
  State trained;
  for (const auto* optimizer : optimizers) {
    for (const auto& [param, average, y] : optimizer->averages()) {
      const auto name = names.find(param.unsafeGetTensorImpl());
      if (name == names.end()) continue;  // not the module's: checkpoints do not hold it
      checkpoint.tensors["model." + name->second] = average;
      trained.tensors[name->second] = y;
    }
  }
  if (!weights_only && !trained.tensors.empty()) checkpoint.put("current_model", trained);
}

void restore_trained_weights(Run& run, const State& checkpoint) {
  if (averaging_optimizers(run).empty()) return;
  const State trained = checkpoint.part("current_model");
  const c10::AutoGradMode no_grad(false);
  for (const auto& item : run.entry.module->named_parameters()) {
    const auto found = trained.tensors.find(item.key());
    if (found != trained.tensors.end()) at::Tensor(item.value()).copy_(found->second);
  }
}

}  // namespace levin
