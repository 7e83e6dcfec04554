#include "levin/trainer/weights_at_end.h"

#include <torch/nn/module.h>

#include <map>

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/process/console.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

/// A checkpoint's weights, which rank 0 holds.
struct WeightsAtEnd::Saved {
  State checkpoint = {};
  std::map<const c10::TensorImpl*, std::string> names = {};  // of the module's parameters
};

namespace {

BestCheckpoint best_of(const Trainer& trainer) {
  for (const Checkpoint* callback : checkpoint_callbacks(trainer.callbacks())) {
    BestCheckpoint best = callback->best_checkpoint();
    if (!best.monitor.empty() && best.score && !best.path.empty()) return best;
  }
  return {};
}

}  // namespace

WeightsAtEnd::WeightsAtEnd(Trainer& trainer, const LightningModule& module, WhichCheckpoint which)
    : trainer_(&trainer) {
  trainer.finish_checkpoints();
  const BestCheckpoint best = best_of(trainer);
  const std::string what = best.monitor + " " + (best.score ? number_text(*best.score) : "") + ", " + best.path;
  if (which == WhichCheckpoint::last && !best.path.empty()) text_ += "; the best checkpoint has " + what;
  if (which == WhichCheckpoint::last) return;
  auto saved = std::make_shared<Saved>();
  std::string found;  // on rank 0, whose files count
  if (trainer.is_global_zero() && !best.path.empty()) {
    try {
      saved->checkpoint = load_checkpoint(best.path);
      found = "the best checkpoint's weights (" + what + ")";
    } catch (const CheckpointError& error) {
      Console::instance().warn(std::string(error.what()) +
                               " It is the best checkpoint of the run; the last weights are taken instead.");
    }
  }
  found = trainer.strategy().ranks().broadcast(found);
  if (found.empty()) return;
  for (const auto& item : module.named_parameters()) saved->names[item.value().unsafeGetTensorImpl()] = item.key();
  best_ = std::move(saved);
  text_ = found;
}

at::Tensor WeightsAtEnd::operator()(const at::Tensor& parameter) const {
  if (best_ == nullptr) return full_parameter(trainer_->strategy().sharding(), parameter);
  if (!trainer_->is_global_zero()) return {};
  const auto name = best_->names.find(parameter.unsafeGetTensorImpl());
  if (name == best_->names.end()) throw Error("WeightsAtEnd: the tensor is not a parameter of the module.");
  return best_->checkpoint.tensor("model." + name->second);
}

}  // namespace levin
