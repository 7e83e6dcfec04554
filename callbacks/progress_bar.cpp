#include "levin/callbacks/progress_bar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <thread>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/data/loading/dataloader.h"
#include "levin/profilers/time_split.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

constexpr int kLinesAlwaysShown = 20;  // of short epochs; later ones at most one a second

template <class... Args>
std::string printed(const char* format, Args... args) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

// 0:00:03
std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::min(seconds, 3.6e8)));
  return printed("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string rate_text(double rate) {
  if (rate >= 100) return printed("%.0f it/s", rate);
  return rate >= 1 ? printed("%.1f it/s", rate) : printed("%.2f s/it", 1 / rate);
}

std::string metrics_text(const Metrics& metrics, const char* separator) {
  std::string text;
  for (const auto& [name, value] : metrics) text += separator + name + " " + printed("%.4g", value);
  return text;
}

// `share` of `cells` columns in eighths of a column.
std::string bar(double share, int cells) {
  static constexpr std::array<const char*, 8> parts{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * 8 * cells));
  std::string text;
  for (int cell = 0; cell < cells; ++cell) {
    const int filled = std::clamp(eighths - 8 * cell, 0, 8);
    text += filled == 8 ? "█" : parts[static_cast<size_t>(filled)];
  }
  return text;
}

std::optional<double> seconds_left(const ProgressView& view) {
  if (!view.total || view.rate <= 0) return std::nullopt;
  return static_cast<double>(*view.total - view.done) / view.rate;
}

std::string count_text(const ProgressView& view) {
  return std::to_string(view.done) + (view.total ? "/" + std::to_string(*view.total) : "");
}

std::string wait_text(const ProgressView& view, const char* separator) {
  return view.data_wait > 0 ? separator + printed("waiting for data %.0f %%", 100 * view.data_wait) : "";
}

}  // namespace

// Parts that do not fit are left out entirely, the last first: half a number would be a different number.
std::string live_line(const ProgressView& view, int columns) {
  const double share =
      view.total && *view.total > 0 ? static_cast<double>(view.done) / static_cast<double>(*view.total) : 1;
  const std::string percent = view.total ? printed("  %3.0f %%", 100 * share) : "";
  std::string rest = "  " + count_text(view) + (view.total ? "" : " batches");
  const auto room = [&] { return columns - static_cast<int>(view.title.size() + percent.size() + rest.size()); };
  const auto add = [&](const std::string& part) {
    if (static_cast<int>(part.size()) <= room()) rest += part;
  };
  if (view.rate > 0) add("  " + rate_text(view.rate));
  if (const auto left = seconds_left(view)) add("  " + clock_text(*left) + " left");
  if (view.run_seconds_left) add(" (run " + clock_text(*view.run_seconds_left) + ")");
  for (const auto& [name, value] : view.metrics) add("  " + name + " " + printed("%.4g", value));
  add(wait_text(view, "  "));
  const int cells = view.total ? std::min(30, room() - 2) : 0;
  return view.title + (cells >= 5 ? "  " + bar(share, cells) : "") + percent + rest;
}

std::string plain_line(const ProgressView& view) {
  std::string title = view.title;
  if (!title.empty()) title[0] = static_cast<char>(std::tolower(title[0]));
  std::string text = title + ": " + count_text(view) + " batches";
  if (view.rate > 0) text += " (" + rate_text(view.rate) + ")";
  if (const auto left = seconds_left(view)) text += ", " + clock_text(*left) + " left";
  if (view.run_seconds_left) text += " (run " + clock_text(*view.run_seconds_left) + ")";
  return text + metrics_text(view.metrics, ", ") + wait_text(view, ", ");
}

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
  train_.title = "Epoch " + std::to_string(trainer.current_epoch() + 1);
  if (epochs != kUnlimited) train_.title += "/" + std::to_string(epochs);
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
  std::string why = trainer.stop_reason();
  if (why.empty() && trainer.global_step() >= trainer.plan().max_steps) {
    why = "max_steps (" + std::to_string(trainer.plan().max_steps) + ") is reached";
  } else if (why.empty() && trainer.current_epoch() >= trainer.plan().max_epochs) {
    why = "max_epochs (" + std::to_string(trainer.plan().max_epochs) + ") is reached";
  } else if (why.empty()) {
    why = "there are no batches";
  }
  if (!trained_) return Console::instance().print("Nothing to train: " + why + ".");
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
  ProgressView view{pass.title, pass.done, pass.total, pass.rate(now), std::nullopt, trainer.progress_bar_metrics(), 0};
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
