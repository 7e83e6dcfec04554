#include "levin/trainer/step/step_engine.h"

#include <ATen/ops/scalar_tensor.h>

#include "levin/trainer/step/automatic_step.h"
#include "levin/trainer/step/loss_scaling.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/step/micro_batching.h"
#include "levin/trainer/step/module_replicas.h"
#include "levin/trainer/step/recorded_evaluation.h"
#include "levin/trainer/step/step_core.h"
#include "levin/trainer/step/step_graph.h"
#include "levin/trainer/step/step_values.h"
#include "levin/trainer/step/unregistered_leaves.h"
#include "levin/trainer/step/window_verdict.h"

namespace levin {

StepEngine::StepEngine(const StepParts& parts) : core_(std::make_unique<StepCore>(parts)) {
  core_->live = make_live_context(*core_);
  core_->context = core_->live.get();
  core_->verdict = std::make_shared<WindowVerdict>(*core_);
}

StepEngine::~StepEngine() = default;

void StepEngine::use(const std::vector<std::shared_ptr<Optimizer>>& optimizers) {
  check_scaling(core_->precision, optimizers);
  core_->optimizers.clear();
  for (const auto& optimizer : optimizers) core_->optimizers.emplace_back(*core_, optimizer);
  core_->micro_batching = core_->settings.micro_batch_size != 0 ? std::make_shared<MicroBatching>(*core_) : nullptr;
}

std::vector<LightningOptimizer>& StepEngine::optimizers() {
  return core_->optimizers;
}

void StepEngine::begin() {
  core_->verdict->begin();
  const RecordSteps record = core_->settings.record_steps;
  if (record != RecordSteps::no) core_->step_graph = StepGraph::make(*core_, record);
}

void StepEngine::end() {
  core_->step_graph.reset();
  core_->verdict->end();
  evaluations_.clear();
}

void StepEngine::open_window(int64_t size, int64_t first_batch) {
  core_->window = {.is_open = true, .size = size, .first_batch = first_batch};
  core_->verdict->open_window();
}

const Window& StepEngine::window() const {
  return core_->window;
}

bool StepEngine::window_is_open() const {
  return core_->window.is_open;
}

bool StepEngine::window_is_done() const {
  return is_done_;
}

at::Tensor StepEngine::step(const Batch& batch, const StepPlace& place) {
  core_->place = place;
  core_->leaves.reset();  // of a batch that failed
  Window& window = core_->window;
  ++window.seen;
  const WindowPart part{window.seen == 1, window.seen == window.size || place.is_last, place.length_is_known};
  is_done_ = part.last;
  at::Tensor loss;
  if (core_->step_graph != nullptr) {
    loss = core_->step_graph->step(batch, place.batch_idx, part);
  } else if (core_->module.automatic_optimization()) {
    loss = automatic_step(*core_, batch, place.batch_idx, part);
  } else {
    loss = manual_step(*core_, batch, place.batch_idx);
  }
  report_leaves(*core_, batch);
  return loss;
}

void StepEngine::update_cut_window(const StepPlace& place) {
  core_->place = place;
  core_->skip_batch = true;  // there is no batch, only the update
  (void)automatic_step(*core_, {}, place.batch_idx, {.first = false, .last = true, .size_known = false});
}

void StepEngine::close_window() {
  core_->verdict->close_window();
  drop_window();
}

void StepEngine::drop_window() {
  core_->window = Window();
}

void StepEngine::skip_batch() {
  core_->skip_batch = true;
}

std::string StepEngine::take_rollback() {
  return core_->verdict->take_rollback();
}

void StepEngine::finish_checks(bool receives_flags) {
  receives_flags ? core_->verdict->finish_late_check_and_receive() : core_->verdict->finish_late_check();
}

int64_t StepEngine::nonfinite_losses() const {
  return core_->verdict->nonfinite_losses();
}

int64_t StepEngine::micro_batch_size() const {
  return core_->micro_batching != nullptr ? core_->micro_batching->size() : 0;
}

at::Tensor StepEngine::forward(const Batch& batch, int64_t batch_idx) {
  const ForwardScope forward(core_->precision, core_->strategy.placement().device().type());
  const HookScope scope(core_->running, Hook::training_step);
  at::Tensor loss = core_->module.training_step(batch, batch_idx);
  (void)take_loss_weight(*core_);
  return loss;
}

void StepEngine::begin_pass(size_t loader) {
  while (evaluations_.size() <= loader) evaluations_.push_back(RecordedEvaluation::make(*core_));
  if (evaluations_[loader] != nullptr) evaluations_[loader]->begin_pass();
}

at::Tensor StepEngine::evaluate(size_t loader, const Batch& batch, int64_t batch_idx, EvaluationStep step) {
  const auto whole = [&](const Batch& of) {
    const ForwardScope forward(core_->precision, core_->strategy.placement().device().type());
    return run_step(*core_, of, ModuleReplicas::Result::outputs, step);
  };
  RecordedEvaluation* recorded = evaluations_[loader].get();
  return recorded != nullptr ? recorded->step(batch, batch_idx, whole) : whole(batch);
}

void StepEngine::save(const StepEngine* engine, State& state, bool in_batch, bool failing) {
  const Window window = engine != nullptr ? engine->window() : Window();
  state.set<int64_t>("window_seen", in_batch ? 0 : window.seen);
  state.set<int64_t>("window_size", window.size);
  state.set("window_spoilt", window.has_nonfinite_loss && !in_batch);
  if (window.unread_loss.defined() && !in_batch) state.set("unread_loss", window.unread_loss.item().toDouble());
  if (engine != nullptr) save_loss_weights(*engine->core_, state, in_batch, failing);
  state.set<int64_t>("micro_batch_size", engine != nullptr ? engine->micro_batch_size() : 0);
}

void StepEngine::load(const State& saved, int64_t next_batch) {
  Window& window = core_->window = Window();
  window.seen = saved.get<int64_t>("window_seen");
  window.is_open = window.seen > 0;
  window.size = saved.get<int64_t>("window_size");
  window.first_batch = next_batch - window.seen;
  window.has_nonfinite_loss = saved.get<bool>("window_spoilt");
  if (saved.has("unread_loss")) {
    window.unread_loss = at::scalar_tensor(saved.get<double>("unread_loss"), at::kDouble);
  }
  load_loss_weights(*core_, saved);
  if (core_->micro_batching != nullptr && saved.has("micro_batch_size")) {
    core_->micro_batching->continue_with(saved.get<int64_t>("micro_batch_size"));
  }
}

bool StepEngine::keeps_gradients(const State& gradients, bool failing) {
  return core_->verdict->keeps_gradients(gradients, failing);
}

void StepEngine::agree_on_weights() {
  levin::agree_on_weights(*core_, /*sync=*/true);
}

}  // namespace levin
