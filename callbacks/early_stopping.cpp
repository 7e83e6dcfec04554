#include "levin/callbacks/early_stopping.h"

#include <cmath>
#include <limits>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// As many digits as float32 has: with fewer a value could look like the threshold that it is compared with.
std::string shown(double value) {
  return short_number(value, 6);
}

}  // namespace

EarlyStopping::EarlyStopping(EarlyStoppingOptions options)
    : options_(checked(std::move(options), "EarlyStoppingOptions")),
      best_score_(options_.mode == MonitorMode::min ? std::numeric_limits<double>::infinity()
                                                    : -std::numeric_limits<double>::infinity()) {}

// In Lightning a trainer without validation whose check_val_every_n_epoch is not 1 never checks; here it checks after
// each epoch.
bool EarlyStopping::checks_on_train_epoch_end(const Trainer& trainer) const {
  return options_.check_on_train_epoch_end.value_or(trainer.validates_only_at_epoch_end() || !trainer.has_validation());
}

void EarlyStopping::on_train_start(Trainer& trainer, LightningModule&) {
  if (options_.strict) expect_metric(trainer, "EarlyStopping", options_.monitor);
}

void EarlyStopping::on_validation_end(Trainer& trainer, LightningModule&) {
  if (!trainer.sanity_checking() && !checks_on_train_epoch_end(trainer)) check(trainer);
}

// A metric of training epochs has its value here, also where validations run within the epoch.
void EarlyStopping::on_train_epoch_end(Trainer& trainer, LightningModule&) {
  if (checks_on_train_epoch_end(trainer) || !options_.check_on_train_epoch_end) check(trainer);
}

// Lightning judges the value that there is, also again where it was not measured since.
void EarlyStopping::check(Trainer& trainer) {
  if (trainer.plan().fast_dev_run || trainer.stage() != Stage::fit) return;
  std::string reason = check_value(trainer);
  if (!trainer.strategy().ranks().any(!reason.empty())) return;
  if (reason.empty()) reason = "EarlyStopping: another rank asked to stop";
  stopped_epoch_ = trainer.current_epoch();
  trainer.request_stop(reason);
  if (options_.verbose) Console::instance().print(reason + ".");
}

// Returns why the run must end, or "" if it continues or the metric has no new value.
std::string EarlyStopping::check_value(const Trainer& trainer) {
  const auto measured = measured_at(trainer, options_.monitor);
  if (!measured) {
    if (may_still_be_measured(trainer)) return "";
    const std::string what = missing_metric_text(trainer, "EarlyStopping", options_.monitor);
    if (options_.strict) {
      throw Error(what + " Call log(\"" + options_.monitor +
                  "\", …) in validation_step, set .monitor, or set .strict to false.");
    }
    Console::instance().warn(what + " It is not checked.");
    return "";
  }
  if (std::exchange(judged_at_, *measured) == *measured) return "";
  const double best_before = best_score_;
  std::string reason = judge(trainer.callback_metrics().at(options_.monitor));
  if (options_.verbose && best_score_ != best_before && trainer.global_rank() == 0) {
    Console::instance().print("EarlyStopping: " + options_.monitor + " improved to " + shown(best_score_) + ".");
  }
  return reason;
}

std::string EarlyStopping::judge(double value) {
  const std::string seen = "EarlyStopping: " + options_.monitor + " is " + shown(value);
  if (options_.check_finite && !std::isfinite(value)) return seen + ", which is not finite";
  if (options_.stopping_threshold && is_better(value, *options_.stopping_threshold)) {
    return seen + ", better than stopping_threshold " + shown(*options_.stopping_threshold);
  }
  if (options_.divergence_threshold && is_better(*options_.divergence_threshold, value)) {
    return seen + ", worse than divergence_threshold " + shown(*options_.divergence_threshold);
  }
  if (is_better(value, best_score_, options_.min_delta)) {
    best_score_ = value;
    wait_count_ = 0;
    return "";
  }
  if (++wait_count_ < options_.patience) return "";
  return "EarlyStopping: " + options_.monitor + " did not improve in " + count_of(wait_count_, "check") +
         "; its best was " + shown(best_score_);
}

bool EarlyStopping::is_better(double value, double other, double margin) const {
  return levin::is_better(options_.mode, value, other, margin);
}

State EarlyStopping::state_dict() const {
  State state;
  state.set("best_score", best_score_);
  state.set("wait_count", wait_count_);
  state.set("stopped_epoch", stopped_epoch_);
  state.set("judged_at", judged_at_);
  return state;
}

void EarlyStopping::load_state_dict(const State& saved) {
  best_score_ = saved.get<double>("best_score");
  wait_count_ = saved.get<int64_t>("wait_count");
  stopped_epoch_ = saved.get<int64_t>("stopped_epoch");
  judged_at_ = saved.has("judged_at") ? saved.get<int64_t>("judged_at") : -1;
}

std::string EarlyStopping::state_key() const {
  return "EarlyStopping(monitor=" + options_.monitor + ", mode=" + enum_name(options_.mode) + ")";
}

}  // namespace levin
