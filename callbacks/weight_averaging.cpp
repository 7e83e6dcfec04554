#include "levin/callbacks/weight_averaging.h"

#include <c10/core/GradMode.h>

#include "levin/core/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace detail {
bool is_device(const std::optional<std::string>& device) {
  try {
    if (device) static_cast<void>(at::Device(*device));
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}
}  // namespace detail

WeightAveraging::WeightAveraging(WeightAveragingOptions options)
    : options_(checked(std::move(options), "WeightAveragingOptions")) {}

// As in Lightning, layers created by configure_model exist before the other callbacks' setup.
void WeightAveraging::setup(Trainer& trainer, LightningModule& module, Stage stage) {
  AveragingCallback::setup(trainer, module, stage);
  if (fitting_) module.configure_model();
}

// In Lightning the average begins with the weights at setup, and is validated, saved and left in the module even if
// nothing was averaged; here it begins with the first update, because untrained weights are useless.
void WeightAveraging::on_fit_start(Trainer& trainer, LightningModule& module) {
  check_optimizers(trainer);
  using Buffers = AveragedWeights::Buffers;
  weights_.hold(module, options_.use_buffers ? Buffers::averaged : Buffers::copied, options_.device);
  if (!loaded_) {
    latest_update_step_ = trainer.global_step();
    latest_update_epoch_ = trainer.current_epoch() - 1;
    if (!trainer.ckpt_path().empty()) {
      Console::instance().warn(state_key() + ": " + trainer.ckpt_path() +
                               " was saved without it. The average starts from scratch.");
    }
    return;
  }
  if (loaded_->has("n_averaged")) weights_.load_state(*loaded_);
  loaded_.reset();
  loaded_model_.clear();
}

bool WeightAveraging::should_update(std::optional<int64_t> step_idx, std::optional<int64_t>) const {
  return step_idx.has_value();
}

void WeightAveraging::average(at::TensorList averages, at::TensorList weights, int64_t count) const {
  update_mean(averages, weights, count);
}

void WeightAveraging::update() {
  const c10::AutoGradMode no_grad(false);
  weights_.update([this](auto averages, auto weights, int64_t count) { average(averages, weights, count); });
}

void WeightAveraging::on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&, int64_t) {
  const int64_t step = trainer.global_step();
  if (step <= latest_update_step_ || !should_update(step - 1, std::nullopt)) return;
  update();
  latest_update_step_ = step;
}

void WeightAveraging::on_train_epoch_end(Trainer& trainer, LightningModule&) {
  const int64_t epoch = trainer.current_epoch();
  if (epoch <= latest_update_epoch_ || !should_update(std::nullopt, epoch)) return;
  update();
  latest_update_epoch_ = epoch;
}

void WeightAveraging::on_validation_epoch_start(Trainer& trainer, LightningModule&) {
  if (trainer.stage() == Stage::fit && weights_.count() > 0) weights_.swap_in();
}

void WeightAveraging::on_validation_epoch_end(Trainer& trainer, LightningModule&) {
  if (trainer.stage() == Stage::fit) weights_.swap_out();
}

void WeightAveraging::on_load_checkpoint(Trainer& trainer, LightningModule& module, const State& checkpoint) {
  AveragingCallback::on_load_checkpoint(trainer, module, checkpoint);
  loaded_.reset();
  loaded_model_.clear();
  if (fitting_) loaded_model_ = checkpoint.part("model").tensors;
}

int64_t WeightAveraging::held_bytes(const LightningModule& module) const {
  using Buffers = AveragedWeights::Buffers;
  return AveragedWeights::bytes_of(module, options_.use_buffers ? Buffers::averaged : Buffers::copied, options_.device);
}

State WeightAveraging::state() const {
  State state;
  if (weights_.count() > 0) state.set("n_averaged", weights_.count());
  state.set("latest_update_step", latest_update_step_);
  state.set("latest_update_epoch", latest_update_epoch_);
  return state;
}

void WeightAveraging::load_state(const State& saved) {
  if (!fitting_) return;
  latest_update_step_ = saved.get<int64_t>("latest_update_step");
  latest_update_epoch_ = saved.get<int64_t>("latest_update_epoch");
  loaded_ = saved;
  loaded_->tensors = loaded_model_;
}

}  // namespace levin
