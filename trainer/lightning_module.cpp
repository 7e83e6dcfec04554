#include "levin/trainer/lightning_module.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/data/batch_rows.h"
#include "levin/libtorch/vector_math.h"
#include "levin/metrics/metric_collection.h"
#include "levin/optim/clip_grad.h"
#include "levin/precision/autocast.h"
#include "levin/recompute/segment.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/run_access.h"
#include "levin/trainer/state/sharded_state.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/pass.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_values.h"
#include "levin/trainer/step/window_verdict.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

[[noreturn]] void missing(const char* step, const char* entry) {
  throw Error(std::string(entry) + " needs " + step + ": override it in your LightningModule.");
}

// A segment that is recomputed in backward has already logged. A trainer that has run the module earlier takes nothing
// from it while another one runs a module around it.
bool is_logged(const Trainer* trainer, const LightningModule& module, std::string_view name) {
  if (is_recomputing()) return false;
  if (trainer != nullptr && RunAccess::of(*trainer).entry.running) return true;
  Console::instance().warn(
      "log(\"" + std::string(name) + "\") of " + detail::readable_type_name(typeid(module)) +
      ": no Trainer is running this module, so its values are dropped. Log them in the module that is given to fit, "
      "validate, test or predict.");
  return false;
}

}  // namespace

namespace {

// The engine of the last fit must not call its module any more.
void end_module(Run& run, const LightningModule& module) {
  if (run.fit.engine != nullptr && &run.fit.engine->core().module == &module)
    run.fit.engine->core().module_is_gone = true;
}

}  // namespace

LightningModule::LightningModule() {
  choose_vector_math();
}

LightningModule::~LightningModule() {
  Trainer* trainer = trainer_;
  // No trainer runs a replica as its module.
  while (trainer != nullptr && RunAccess::of(*trainer).entry.module == this) {
    Run& run = RunAccess::of(*trainer);
    run.entry.module = nullptr;
    end_module(run, *this);
    trainer = std::exchange(run.earlier, nullptr);
  }
}

void RunAccess::attach(LightningModule& module, Trainer& trainer) {
  if (LightningModule* before = of(trainer).entry.module) {
    if (before != &module) end_module(of(trainer), *before);
    detach(*before, trainer);
  }
  of(trainer).earlier = std::exchange(ModuleAccess::trainer_of(module), &trainer);
}

void RunAccess::detach(LightningModule& module, Trainer& trainer) {
  Trainer** link = &ModuleAccess::trainer_of(module);
  while (*link != nullptr && *link != &trainer) link = &of(**link).earlier;
  if (*link != nullptr) *link = std::exchange(of(trainer).earlier, nullptr);
}

at::Tensor LightningModule::training_step(const Batch&) {
  missing("training_step", "fit");
}
at::Tensor LightningModule::training_step(const Batch& batch, int64_t) {
  return training_step(batch);
}
void LightningModule::validation_step(const Batch&) {
  missing("validation_step", "validation");
}
void LightningModule::validation_step(const Batch& batch, int64_t) {
  validation_step(batch);
}
void LightningModule::test_step(const Batch&) {
  missing("test_step", "test");
}
void LightningModule::test_step(const Batch& batch, int64_t) {
  test_step(batch);
}
at::Tensor LightningModule::predict_step(const Batch& batch) {
  return forward(batch[0]);
}
at::Tensor LightningModule::predict_step(const Batch& batch, int64_t) {
  return predict_step(batch);
}
at::Tensor LightningModule::forward(const at::Tensor&) {
  missing("forward or predict_step", "predict");
}

Batch LightningModule::transfer_batch_to_device(Batch batch, at::Device device, int64_t) {
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    if (batch.tensors[i].defined()) continue;
    throw Error("tensor " + std::to_string(i) + " of the " + count_of(std::ssize(batch.tensors), "tensor") +
                " of the batch is undefined. Look at what the loader's next() or the collate function returns.");
  }
  const auto move = [device](at::Tensor& tensor) {
    if (tensor.device() != device) tensor = tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true);
  };
  for (at::Tensor& tensor : batch.tensors) move(tensor);
  if (has_values(batch)) {
    check_can_move(batch, device);
    visit_values(batch, move);
  }
  return batch;
}

void LightningModule::configure_gradient_clipping(Optimizer& optimizer, double clip_val, ClipAlgorithm algorithm) {
  if (clip_val > 0) clip_gradients(optimizer, clip_val, algorithm);
}

void LightningModule::clip_gradients(Optimizer& optimizer, double clip_val, ClipAlgorithm algorithm) {
  if (!automatic_optimization_ && trainer_ != nullptr) {
    for (auto& wrapped : optimizers()) {
      if (&wrapped.optimizer() == &optimizer) wrapped.unscale_gradients();
    }
  }
  if (algorithm == ClipAlgorithm::norm && trainer_ != nullptr &&
      trainer_->strategy().sharding().has_sharded_gradients()) {
    const at::Tensor norm = norm_over_ranks(trainer_->strategy().ranks(), optimizer.parameters());
    return clip_grads_with_norm_(optimizer.parameters(), clip_val, norm);
  }
  if (algorithm == ClipAlgorithm::norm) clip_grad_norm_(optimizer.parameters(), clip_val);
  if (algorithm == ClipAlgorithm::value) clip_grad_value_(optimizer.parameters(), clip_val);
}

void LightningModule::optimizer_zero_grad(Optimizer& optimizer) {
  optimizer.zero_grad();
}

void LightningModule::optimizer_step(int64_t, int64_t, Optimizer& optimizer) {
  optimizer.step();
}

void LightningModule::backward(const at::Tensor& loss) {
  loss.backward();
}

at::Tensor LightningModule::all_gather(const at::Tensor& value) const {
  const at::Tensor all = trainer().strategy().ranks().gather(value.detach().cpu());
  return all.to(value.device());
}

void LightningModule::lr_scheduler_step(LRScheduler& scheduler, std::optional<double> metric) {
  if (metric) scheduler.step(*metric);
  if (!metric) scheduler.step();
}

void LightningModule::log(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  if (is_logged(trainer_, *this, name)) trainer_->log(name, value, options);
}

void LightningModule::log(std::string_view name, double value, const LogOptions& options) {
  if (is_logged(trainer_, *this, name)) trainer_->log(name, value, options);
}

void LightningModule::log(std::string_view name, metrics::Metric& metric, const LogOptions& options) {
  if (is_logged(trainer_, *this, name)) trainer_->log(name, metric, options);
}

void LightningModule::log_dict(const std::map<std::string, at::Tensor>& values, const LogOptions& options) {
  for (const auto& [name, value] : values) log(name, value, options);
}

void LightningModule::log_dict(const std::map<std::string, double>& values, const LogOptions& options) {
  for (const auto& [name, value] : values) log(name, value, options);
}

void LightningModule::log_dict(metrics::MetricCollection& metrics, const LogOptions& options) {
  for (auto& [name, metric] : metrics) log(name, metric, options);
}

void LightningModule::log_histogram(std::string_view name, const at::Tensor& values) {
  if (is_logged(trainer_, *this, name)) trainer_->log_histogram(name, values);
}

void LightningModule::log_image(std::string_view name, const at::Tensor& image) {
  if (is_logged(trainer_, *this, name)) trainer_->log_image(name, image);
}

void LightningModule::log_text(std::string_view name, std::string_view text) {
  if (is_logged(trainer_, *this, name)) trainer_->log_text(name, text);
}

void LightningModule::log_table(std::string_view name, LogTable table) {
  if (is_logged(trainer_, *this, name)) trainer_->log_table(name, std::move(table));
}

void LightningModule::log_artifact(const std::string& path, std::string_view name) {
  if (is_logged(trainer_, *this, path)) trainer_->log_artifact(path, name);
}

void LightningModule::set_loss_weight(double weight) {
  set_loss_weight(at::scalar_tensor(weight, at::kDouble));
}

void LightningModule::set_loss_weight(const at::Tensor& weight) {
  if (trainer_ == nullptr) return;
  const EntryPoint& entry = RunAccess::of(*trainer_).entry;
  const bool trains = entry.phase == Phase::train && entry.place.hook == Hook::training_step;
  if (trains) note_loss_weight(entry.engine->core(), weight);
}

void LightningModule::step_output(std::string_view name, const at::Tensor& value) {
  if (trainer_ == nullptr || is_recomputing()) return;
  const auto& engine = RunAccess::of(*trainer_).entry.engine;
  if (engine == nullptr) throw Error("step_output: no step is running. Call it in a step.");
  context_of(engine->core()).publish(name, value);
}

void LightningModule::manual_backward(const at::Tensor& loss) {
  if (automatic_optimization_) {
    throw Error(
        "manual_backward: the module uses automatic optimization, where the trainer runs backward. Call "
        "set_automatic_optimization(false) in the constructor.");
  }
  const auto& engine = RunAccess::of(trainer()).entry.engine;
  if (engine == nullptr) throw Error("manual_backward: no step is running. Call it in training_step.");
  StepCore& core = engine->core();
  (void)core.verdict->add(loss);
  // The step runs under the precision's autocast; backward uses the types of the forward pass.
  const Autocast plain(device().type(), std::nullopt, {.enabled = false});
  run_backward(core, loss, true);
  core.time_split.enter(StepPart::forward);  // the rest of training_step
}

LightningOptimizer& LightningModule::optimizer(size_t index) {
  auto& all = optimizers();
  if (index >= all.size()) {
    throw Error("optimizer(" + std::to_string(index) + "): configure_optimizers returned " +
                count_of(all.size(), "optimizer") + ".");
  }
  return all[index];
}

std::vector<LightningOptimizer>& LightningModule::optimizers() {
  return trainer().optimizers();
}
std::vector<LRSchedulerConfig>& LightningModule::lr_schedulers() {
  return trainer().lr_schedulers();
}

LRScheduler& LightningModule::lr_scheduler(size_t index) {
  auto& all = lr_schedulers();
  if (index >= all.size()) {
    throw Error("lr_scheduler(" + std::to_string(index) + "): configure_optimizers returned " +
                count_of(all.size(), "scheduler") + ".");
  }
  return *all[index].scheduler;
}

void LightningModule::toggle_optimizer(Optimizer& optimizer) {
  if (!toggled_.empty()) throw Error("toggle_optimizer: another optimizer is toggled. Call untoggle_optimizer first.");
  const std::vector<at::Tensor> wanted = optimizer.parameters();
  auto belongs = [&](const at::Tensor& p) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const at::Tensor& w) { return w.is_same(p); });
  };
  for (auto& wrapped : optimizers()) {
    for (at::Tensor parameter : wrapped.optimizer().parameters()) {
      if (belongs(parameter)) continue;
      toggled_.emplace_back(parameter, parameter.requires_grad());
      parameter.set_requires_grad(false);
    }
  }
}

void LightningModule::untoggle_optimizer(Optimizer&) {
  // In reverse: a parameter of two other optimizers was recorded twice, first with its original flag.
  for (auto it = toggled_.rbegin(); it != toggled_.rend(); ++it) it->first.set_requires_grad(it->second);
  toggled_.clear();
}

void LightningModule::freeze() {
  for (at::Tensor& parameter : parameters()) parameter.set_requires_grad(false);
  eval();
}

void LightningModule::unfreeze() {
  for (at::Tensor& parameter : parameters()) parameter.set_requires_grad(true);
  train();
}

void LightningModule::print(const std::string& text) const {
  Console::instance().print(text);
}

Trainer& LightningModule::trainer() const {
  if (trainer_ == nullptr)
    throw Error("trainer(): the module is not attached to a Trainer. Call fit, validate, test or predict.");
  return *trainer_;
}

int64_t LightningModule::current_epoch() const {
  return trainer_ != nullptr ? trainer_->current_epoch() : 0;
}
int64_t LightningModule::global_step() const {
  return trainer_ != nullptr ? trainer_->global_step() : 0;
}
int64_t LightningModule::global_rank() const {
  return trainer_ != nullptr ? trainer_->global_rank() : 0;
}
int64_t LightningModule::dataloader_idx() const {
  return trainer_ != nullptr ? std::max<int64_t>(0, RunAccess::of(*trainer_).entry.place.dataloader_idx) : 0;
}

at::Device LightningModule::device() const {
  if (trainer_ != nullptr) return trainer_->device();
  for (const auto& parameter : parameters()) return parameter.device();
  return at::kCPU;
}

}  // namespace levin
