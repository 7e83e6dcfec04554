#include "levin/callbacks/weight_averaging.h"

#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "levin/core/process/console.h"
#include "levin/optim/averaging_optimizer.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr const char* kCurrentModel = "current_model";

// Validation runs in inference mode, whose tensors cannot be used in training afterwards.
class PlainTensorsWithoutGradients {
  c10::InferenceMode inference_{false};
  c10::AutoGradMode gradients_{false};
};

at::ScalarType average_type(at::ScalarType weight) {
  return weight == at::kHalf || weight == at::kBFloat16 ? at::kFloat : weight;
}

bool is_averaged(const at::Tensor& weight) {
  return weight.is_floating_point() || weight.is_complex();
}

at::Tensor like_average(const at::Tensor& weight, const at::Tensor& average) {
  if (weight.device() == average.device() && weight.dtype() == average.dtype()) return weight;
  return weight.to(average.device(), average.scalar_type());
}

}  // namespace

void AveragedWeights::hold(LightningModule& module, Buffers buffers, const std::optional<std::string>& device) {
  forget();
  const PlainTensorsWithoutGradients scope;
  module_ = &module;
  auto add = [&](const std::string& name, const at::Tensor& weight, bool averaged, bool kept) {
    Entry entry{name, weight, {}, averaged};
    if (kept) {
      const at::Device place = device ? at::Device(*device) : weight.device();
      const auto type = averaged ? average_type(weight.scalar_type()) : weight.scalar_type();
      entry.average = at::empty_like(weight, weight.options().device(place).dtype(type).requires_grad(false));
    }
    if (averaged) averages_.push_back(entry.average);
    entries_.push_back(std::move(entry));
  };
  for (const auto& item : module.named_parameters()) {
    add(item.key(), item.value(), is_averaged(item.value()), true);
  }
  for (const auto& item : module.named_buffers()) {
    const bool averaged = buffers == Buffers::averaged && item.value().is_floating_point();
    add(item.key(), item.value(), averaged, buffers != Buffers::left_alone);
  }
}

int64_t AveragedWeights::bytes_of(const LightningModule& module, Buffers buffers,
                                  const std::optional<std::string>& device) {
  int64_t bytes = 0;
  auto add = [&](const at::Tensor& weight, bool averaged) {
    if (device && at::Device(*device).type() != weight.device().type()) return;
    const auto type = averaged ? average_type(weight.scalar_type()) : weight.scalar_type();
    bytes += weight.numel() * static_cast<int64_t>(c10::elementSize(type));
  };
  for (const at::Tensor& parameter : module.parameters()) add(parameter, is_averaged(parameter));
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffers != Buffers::left_alone) add(buffer, buffers == Buffers::averaged && buffer.is_floating_point());
  }
  return bytes;
}

void AveragedWeights::forget() {
  *this = AveragedWeights();
}

std::vector<at::Tensor> AveragedWeights::begin_update() const {
  const PlainTensorsWithoutGradients scope;
  std::vector<at::Tensor> weights;
  weights.reserve(averages_.size());
  for (const auto& entry : entries_) {
    if (entry.is_averaged) weights.push_back(like_average(entry.weight.detach(), entry.average));
  }
  return weights;
}

void AveragedWeights::end_update(const std::vector<at::Tensor>& weights) {
  const PlainTensorsWithoutGradients scope;
  for (size_t i = 0; count_ == 0 && i < weights.size(); ++i) averages_[i].copy_(weights[i]);
  for (auto& entry : entries_) {
    if (entry.average.defined() && !entry.is_averaged) entry.average.copy_(entry.weight);
  }
  ++count_;
}

void AveragedWeights::swap_in() {
  if (swapped()) return;
  const PlainTensorsWithoutGradients scope;
  std::vector<at::Tensor> kept;  // complete before anything changes
  for (const auto& entry : entries_) kept.push_back(entry.weight.detach().clone());
  kept_ = std::move(kept);
  for (auto& entry : entries_) {
    if (entry.average.defined()) entry.weight.copy_(entry.average);
  }
}

void AveragedWeights::swap_out() {
  if (!swapped()) return;
  const PlainTensorsWithoutGradients scope;
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i].weight.copy_(kept_[i]);
  kept_.clear();
}

State AveragedWeights::state_dict() const {
  State state;
  if (count_ == 0) return state;
  state.set("n_averaged", count_);
  for (const auto& entry : entries_) {
    if (entry.average.defined()) state.tensors[entry.name] = entry.average;
  }
  return state;
}

State AveragedWeights::weights() const {
  State state;
  for (size_t i = 0; i < entries_.size(); ++i) {
    state.tensors[entries_[i].name] = swapped() ? kept_[i] : entries_[i].weight;
  }
  return state;
}

void AveragedWeights::load_state_dict(const State& saved) {
  const PlainTensorsWithoutGradients scope;
  for (auto& entry : entries_) {
    if (!entry.average.defined()) continue;
    const at::Tensor& average = saved.tensor(entry.name);
    if (average.sizes() != entry.average.sizes()) {
      throw CheckpointError("the saved average of \"" + entry.name +
                            "\" has a different shape in the module. Load a checkpoint of the same model.");
    }
    entry.average.copy_(average);
  }
  count_ = saved.get<int64_t>("n_averaged");
}

void update_mean(at::TensorList averages, at::TensorList weights, int64_t count) {
  at::_foreach_lerp_(averages, weights, 1.0 / static_cast<double>(count + 1));
}

// ---- AveragingCallback -------------------------------------------------------------------------------------------

void AveragingCallback::setup(Trainer& trainer, LightningModule&, Stage stage) {
  fitting_ = stage == Stage::fit;
  ended_ = false;
  if (fitting_) weights_.forget();
  for (const auto& other : trainer.callbacks()) {
    if (other.get() == this || dynamic_cast<const AveragingCallback*>(other.get()) == nullptr) continue;
    throw ConfigError("TrainerOptions.callbacks: " + state_key() + " and " + other->state_key() +
                      " would both put their average into the module. Keep one of the two.");
  }
}

void AveragingCallback::check_optimizers(Trainer& trainer) const {
  for (auto& wrapped : trainer.optimizers()) {
    if (dynamic_cast<const AveragingOptimizer*>(&wrapped.optimizer()) == nullptr) continue;
    throw ConfigError("TrainerOptions.callbacks: " + state_key() + " and the optimizer " + wrapped.optimizer().name() +
                      " would both put their average into the module. Drop the callback, or use another optimizer.");
  }
}

void AveragingCallback::on_train_end(Trainer&, LightningModule&) {
  if (weights_.count() > 0) weights_.swap_in();
  ended_ = true;
}

void AveragingCallback::on_fit_end(Trainer& trainer, LightningModule& module) {
  if (!ended_) on_train_end(trainer, module);
}

void AveragingCallback::on_exception(Trainer&, LightningModule&, const std::exception&) {
  if (fitting_ && !ended_) weights_.swap_out();
}

// Also while the average is in the module, whose type may have fewer bits.
State AveragingCallback::weights_to_save(const LightningModule& module) const {
  return weights_.holds(module) && saves_average_as_model() ? weights_.state_dict() : State();
}

void AveragingCallback::on_save_checkpoint(Trainer&, LightningModule& module, State& checkpoint) {
  if (!weights_.holds(module) || weights_.count() == 0) return;
  if (weights_.swapped() || saves_average_as_model()) checkpoint.put(kCurrentModel, weights_.weights());
}

void AveragingCallback::on_load_checkpoint(Trainer&, LightningModule& module, const State& checkpoint) {
  if (!fitting_) {
    if (weights_.holds(module)) weights_.forget();  // the module's weights have changed
    return;
  }
  const State current = checkpoint.part(kCurrentModel);
  if (current.tensors.empty()) return;
  const c10::AutoGradMode no_grad(false);
  const auto copy = [&](const auto& items) {
    for (const auto& item : items) at::Tensor(item.value()).copy_(current.tensor(item.key()));
  };
  copy(module.named_parameters());
  copy(module.named_buffers());
}

// ---- WeightAveraging ----------------------------------------------------------------------------------------------

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
  hold(module);
  if (!loaded_) {
    latest_update_step_ = trainer.global_step();
    latest_update_epoch_ = trainer.current_epoch() - 1;
    if (!trainer.ckpt_path().empty()) {
      Console::instance().warn(state_key() + ": " + trainer.ckpt_path() +
                               " was saved without it. The average starts from scratch.");
    }
    return;
  }
  use_loaded();
}

void WeightAveraging::hold(LightningModule& module) {
  using Buffers = AveragedWeights::Buffers;
  weights_.hold(module, options_.use_buffers ? Buffers::averaged : Buffers::copied, options_.device);
}

void WeightAveraging::use_loaded() {
  if (loaded_->has("n_averaged")) weights_.load_state_dict(*loaded_);
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
  if (fitting_ && weights_.holds(module)) hold(module);  // Fabric.load after on_fit_start: the average begins anew
}

int64_t WeightAveraging::held_bytes(const LightningModule& module) const {
  using Buffers = AveragedWeights::Buffers;
  return AveragedWeights::bytes_of(module, options_.use_buffers ? Buffers::averaged : Buffers::copied, options_.device);
}

State WeightAveraging::default_state_dict() const {
  State state;
  if (weights_.count() > 0) state.set("n_averaged", weights_.count());
  state.set("latest_update_step", latest_update_step_);
  state.set("latest_update_epoch", latest_update_epoch_);
  return state;
}

void WeightAveraging::load_default_state_dict(const State& saved) {
  if (!fitting_) return;
  latest_update_step_ = saved.get<int64_t>("latest_update_step");
  latest_update_epoch_ = saved.get<int64_t>("latest_update_epoch");
  loaded_ = saved;
  loaded_->tensors = loaded_model_;
  if (weights_.holds_a_module()) use_loaded();
}

EMAWeightAveraging::EMAWeightAveraging(EMAWeightAveragingOptions options)
    : WeightAveraging(
          {.device = checked(options, "EMAWeightAveragingOptions").device, .use_buffers = options.use_buffers}),
      options_(std::move(options)) {}

bool EMAWeightAveraging::should_update(std::optional<int64_t> step_idx, std::optional<int64_t> epoch_idx) const {
  if (step_idx) {
    const int64_t every = options_.update_every_n_steps;
    return *step_idx >= options_.update_starting_at_step.value_or(0) && every > 0 && *step_idx % every == 0;
  }
  return epoch_idx && options_.update_starting_at_epoch && *epoch_idx >= *options_.update_starting_at_epoch;
}

void EMAWeightAveraging::average(at::TensorList averages, at::TensorList weights, int64_t) const {
  at::_foreach_lerp_(averages, weights, 1 - options_.decay);
}

}  // namespace levin
