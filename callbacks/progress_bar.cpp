#include "levin/callbacks/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/process_memory.h"
#include "levin/data/loading/dataloader.h"
#include "levin/libtorch/device_memory.h"
#include "levin/profilers/time_split.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr int kLinesAlwaysShown = 20;  // of short epochs; later ones at most one a second

// What tensors hold on a GPU; on a CPU, and in a LibTorch that does not tell, the process's memory.
int64_t memory_in_use(const at::Device& device) {
  if (!device.is_cuda() || !has_device_stats()) return process_memory().resident;
  return all_pools(device_stats(device).allocated_bytes).current;
}

}  // namespace

ProgressBar::ProgressBar(ProgressBarOptions options) : options_(checked(std::move(options), "ProgressBarOptions")) {}

double ProgressBar::Pass::seconds(Clock::time_point now) const {
  return std::chrono::duration<double>(now - started - paused).count();
}

double ProgressBar::Pass::rate(Clock::time_point now) const {
  return seen == 0 ? 0 : static_cast<double>(seen) / std::max(1e-9, seconds(now));
}

// ---- hooks ----------------------------------------------------------------------------------------------------------

void ProgressBar::on_fit_start(Trainer& trainer, LightningModule&) {
  fit_started_ = Clock::now();
  first_step_ = trainer.global_step();
  trained_ = advised_ = false;
  lines_ = 0;
  schedule_next(fit_started_);
}

void ProgressBar::on_train_start(Trainer& trainer, LightningModule&) {
  first_step_ = trainer.global_step();
  first_epoch_ = trainer.current_epoch();
  batches_of_fit_ = 0;
  fit_started_ = Clock::now();
  trained_ = true;
  start_training_pass(trainer);  // an epoch that a restart continues has no on_train_epoch_start
}

void ProgressBar::on_train_epoch_start(Trainer& trainer, LightningModule&) {
  start_training_pass(trainer);
}

void ProgressBar::start_training_pass(Trainer& trainer) {
  const int64_t epochs = trainer.plan().max_epochs;
  train_ = {};
  train_.title = "Epoch " + std::to_string(trainer.current_epoch());  // from 0, as in checkpoints, logs and errors
  if (epochs != kUnlimited) train_.title += "/" + std::to_string(epochs - 1);
  if (trainer.num_training_batches() != kUnlimited) train_.total = trainer.num_training_batches();
  train_.started = Clock::now();
  if (next_draw_ == Clock::time_point()) schedule_next(train_.started);
}

void ProgressBar::on_train_batch_end(Trainer& trainer, LightningModule&, const at::Tensor&, const Batch&,
                                     int64_t batch_idx) {
  train_.done = batch_idx + 1;
  ++train_.seen;
  ++batches_of_fit_;
  draw_if_due(trainer, train_);
}

void ProgressBar::on_train_epoch_end(Trainer& trainer, LightningModule&) {
  print_epoch(trainer);
  advise(trainer);
}

void ProgressBar::print_epoch(Trainer& trainer) {
  const auto now = Clock::now();
  const bool last = trainer.should_stop() || trainer.current_epoch() + 1 >= trainer.plan().max_epochs ||
                    trainer.global_step() >= trainer.plan().max_steps;
  if (!last && lines_ >= kLinesAlwaysShown && now - last_line_ < std::chrono::seconds(1)) return;
  ++lines_;
  last_line_ = now;
  Console::instance().live("");
  print_summary(train_, now, trainer.progress_bar_metrics());
}

void ProgressBar::advise(const Trainer& trainer) {
  if (advised_ || trainer.global_rank() != 0) return;
  const auto loader = std::dynamic_pointer_cast<DataLoader>(trainer.train_dataloader());
  std::string text = data_wait_text(trainer.time_split().times(),
                                    loader != nullptr ? std::optional(loader->num_workers()) : std::nullopt,
                                    static_cast<int64_t>(std::thread::hardware_concurrency()));
  if (text.empty()) return;
  advised_ = true;
  text[0] = static_cast<char>(std::toupper(text[0]));
  Console::instance().print(text + ".");
}

void ProgressBar::start_evaluation(Trainer& trainer, const std::string& title) {
  evaluation_ = {};
  evaluation_.title = trainer.sanity_checking() ? "Sanity check" : title;
  int64_t total = 0;
  for (const int64_t batches : trainer.num_eval_batches()) total = batches == kUnlimited ? kUnlimited : total + batches;
  if (total != kUnlimited) evaluation_.total = total;
  evaluation_.started = Clock::now();
  if (next_draw_ == Clock::time_point()) schedule_next(evaluation_.started);
}

void ProgressBar::evaluated_batch(Trainer& trainer) {
  ++evaluation_.done;
  ++evaluation_.seen;
  draw_if_due(trainer, evaluation_);
}

void ProgressBar::end_evaluation(Trainer& trainer) {
  const auto now = Clock::now();
  if (trainer.stage() == Stage::fit) {
    train_.paused += now - evaluation_.started;
    if (trainer.sanity_checking()) Console::instance().live("");
    return;
  }
  Console::instance().live("");
  print_summary(evaluation_, now, trainer.callback_metrics());
  next_draw_ = {};
}

// One line: how long it took and why it ended.
void ProgressBar::on_fit_end(Trainer& trainer, LightningModule&) {
  Console::instance().live("");
  next_draw_ = {};
  if (!trained_) return;  // the trainer reports it
  const std::string why = end_reason(trainer);
  const int64_t epochs = trainer.current_epoch() - first_epoch_;
  const int64_t steps = trainer.global_step() - first_step_;
  Console::instance().print("Trained " + count_of(epochs, "epoch") + ", " + count_of(steps, "step") + ", in " +
                            readable_duration(Clock::now() - fit_started_) + ": " + why + ".");
}

void ProgressBar::on_exception(Trainer&, LightningModule&, const std::exception&) {
  Console::instance().finish_live();
  next_draw_ = {};
}

// ---- drawing --------------------------------------------------------------------------------------------------------

void ProgressBar::schedule_next(Clock::time_point now) {
  const Seconds interval = Console::instance().is_terminal() ? options_.refresh_interval : options_.line_interval;
  next_draw_ = now + std::chrono::duration_cast<Clock::duration>(interval);
}

void ProgressBar::draw_if_due(Trainer& trainer, const Pass& pass) {
  const auto now = Clock::now();
  if (now < next_draw_) return;
  draw(trainer, pass, now);
  schedule_next(now);
}

void ProgressBar::draw(Trainer& trainer, const Pass& pass, Clock::time_point now) {
  Console& console = Console::instance();
  const ProgressView view = view_of(trainer, pass, now);
  if (console.is_terminal()) return console.live(live_line(view, console.width() - 1));
  console.print(plain_line(view));
}

ProgressView ProgressBar::view_of(Trainer& trainer, const Pass& pass, Clock::time_point now) const {
  ProgressView view{pass.title,
                    pass.done,
                    pass.total,
                    pass.rate(now),
                    std::nullopt,
                    trainer.progress_bar_metrics(),
                    0,
                    memory_in_use(trainer.device())};
  if (&pass != &train_) return view;
  view.run_seconds_left = run_seconds_left(trainer, now);
  const StepTimes times = trainer.time_split().times();
  if (data_is_bottleneck(times)) view.data_wait = times.share(StepPart::data);
  return view;
}

// Of the fit, validation included; unset if it is open or this is its only epoch.
std::optional<double> ProgressBar::run_seconds_left(const Trainer& trainer, Clock::time_point now) const {
  if (!train_.total || batches_of_fit_ == 0) return std::nullopt;
  const RunPlan& plan = trainer.plan();
  double batches = INFINITY;
  if (plan.max_epochs != kUnlimited) {
    batches = static_cast<double>((plan.max_epochs - trainer.current_epoch()) * *train_.total - train_.done);
  }
  if (plan.max_steps != kUnlimited) {
    const int64_t steps = plan.max_steps - trainer.global_step();
    batches = std::min(batches, static_cast<double>(steps) * static_cast<double>(trainer.accumulate_grad_batches()));
  }
  if (!std::isfinite(batches) || batches <= static_cast<double>(*train_.total - train_.done)) return std::nullopt;
  const double elapsed = std::chrono::duration<double>(now - fit_started_).count();
  return batches * elapsed / static_cast<double>(batches_of_fit_);
}

void ProgressBar::print_summary(const Pass& pass, Clock::time_point now, const Metrics& metrics) {
  std::string title = pass.title;
  title[0] = static_cast<char>(std::tolower(title[0]));
  std::string text =
      title + ": " + count_of(pass.seen, "batch", "batches") + " in " + readable_duration(Seconds(pass.seconds(now)));
  if (pass.seen > 0) text += " (" + rate_text(pass.rate(now)) + ")";
  Console::instance().print(text + metrics_text(metrics, ", "));
}

}  // namespace levin
