#include "levin/callbacks/learning_rate_finder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/svg.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"
#include "levin/trainer/trial_runs.h"

namespace levin {

namespace {

constexpr const char* kFinderName = "LearningRateFinder";

std::string with_name(const std::string& text) {
  return std::string(kFinderName) + ": " + text;
}

constexpr double kSmoothing = 0.98;
constexpr size_t kSkippedAtStart = 10;
constexpr size_t kSkippedAtEnd = 1;

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 80, kRight = 20, kTop = 40, kBottom = 60;

// Maps data to the plot.
struct Frame {
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;

  [[nodiscard]] double x(double value) const {
    return kLeft + (value - x_low) / (x_high - x_low) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - (value - y_low) / (y_high - y_low) * (kHeight - kTop - kBottom);
  }
  void take(double px, double py, bool first) {
    x_low = first ? px : std::min(x_low, px);
    x_high = first ? px : std::max(x_high, px);
    y_low = first ? py : std::min(y_low, py);
    y_high = first ? py : std::max(y_high, py);
  }
  void widen() {
    if (x_high <= x_low) x_high = x_low + 1;
    if (y_high <= y_low) y_high = y_low + 1;
  }
};

// Round numbers within a range; integers, which are powers of ten, if `least_step` is 1 because axes are logarithmic.
std::vector<double> ticks(double low, double high, double least_step) {
  const double step = std::max(tick_step(high - low, 6), least_step);
  std::vector<double> list;
  for (double k = std::ceil(low / step); k * step <= high; ++k) list.push_back(k * step);
  return list;
}

void draw_axes(Svg& svg, const Frame& frame, bool logarithmic) {
  constexpr double kFoot = kHeight - kBottom;
  for (const double px : ticks(frame.x_low, frame.x_high, logarithmic ? 1 : 0)) {
    const double lr = logarithmic ? std::pow(10.0, px) : px;
    svg.line({frame.x(px), kFoot}, {frame.x(px), kFoot + 5});
    svg.text({frame.x(px), kFoot + 20}, formatted("%.3g", lr), {.anchor = Svg::Anchor::middle});
  }
  for (const double py : ticks(frame.y_low, frame.y_high, 0)) {
    svg.text({kLeft - 8, frame.y(py) + 4}, formatted("%.4g", py), {.anchor = Svg::Anchor::end});
    svg.line({kLeft, frame.y(py)}, {kWidth - kRight, frame.y(py)}, {.colour = "#dddddd"});
  }
  svg.line({kLeft, kFoot}, {kWidth - kRight, kFoot});
  svg.line({kLeft, kTop}, {kLeft, kFoot});
  svg.text({kWidth / 2, kHeight - 15}, "learning rate", {.anchor = Svg::Anchor::middle});
  svg.text({kLeft, kTop - 12}, "smoothed loss");
}

}  // namespace

double LrCurve::axis(double lr) const {
  return logarithmic_ ? std::log10(lr) : lr;
}

void LrCurve::add(double lr, double loss) {
  average_ = kSmoothing * average_ + (1 - kSmoothing) * loss;
  weight_ *= kSmoothing;
  const double smoothed = average_ / (1 - weight_);
  if (points_.empty() || smoothed < best_) best_ = smoothed;
  points_.push_back({lr, smoothed});
}

bool LrCurve::diverges(double threshold) const {
  if (points_.empty()) return false;
  const double last = points_.back().loss;
  // For a loss above 0 this is threshold * best; a loss may also be negative, as a log-likelihood is.
  const double limit = best_ + (threshold - 1) * std::abs(best_);
  return !std::isfinite(last) || (points_.size() > 1 && last > limit);
}

std::optional<double> LrCurve::suggestion() const {
  std::vector<Point> used;
  for (size_t k = kSkippedAtStart; k + kSkippedAtEnd < points_.size(); ++k) {
    if (std::isfinite(points_[k].loss)) used.push_back(points_[k]);
  }
  if (used.size() < 2) return std::nullopt;
  size_t steepest = 0;
  double lowest = 0;
  for (size_t k = 0; k < used.size(); ++k) {
    const Point& before = used[k == 0 ? 0 : k - 1];
    const Point& after = used[std::min(k + 1, used.size() - 1)];
    const double slope = (after.loss - before.loss) / (axis(after.lr) - axis(before.lr));
    if (k > 0 && !(slope < lowest)) continue;
    lowest = slope;
    steepest = k;
  }
  return used[steepest].lr;
}

std::string LrCurve::csv() const {
  std::string out = "lr,loss\n";
  for (const Point& point : points_) out += number_text(point.lr) + "," + number_text(point.loss) + "\n";
  return out;
}

std::string LrCurve::svg() const {
  Frame frame;
  bool first = true;
  for (const Point& point : points_) {
    if (!std::isfinite(point.loss)) continue;
    frame.take(axis(point.lr), point.loss, std::exchange(first, false));
  }
  frame.widen();
  Svg svg(kWidth, kHeight);
  draw_axes(svg, frame, logarithmic_);
  const auto suggested = suggestion();
  std::vector<Svg::Point> curve;
  std::optional<Svg::Point> mark;
  for (const Point& point : points_) {
    if (!std::isfinite(point.loss)) continue;
    curve.push_back({frame.x(axis(point.lr)), frame.y(point.loss)});
    if (suggested && point.lr == *suggested) mark = curve.back();
  }
  svg.curve(curve, {.colour = Svg::kColours[0], .width = 2});
  if (mark) {
    svg.dot(*mark, 5, Svg::kColours[1]);
    svg.text({kWidth - kRight, kTop - 12}, "suggestion " + formatted("%.3g", *suggested), {.anchor = Svg::Anchor::end});
  }
  return svg.str();
}

LearningRateFinder::LearningRateFinder(LearningRateFinderOptions options)
    : options_(checked(std::move(options), "LearningRateFinderOptions")),
      curve_(options_.mode == LrSpacing::exponential) {
  if (options_.min_lr < options_.max_lr) return;
  throw ConfigError("LearningRateFinderOptions.min_lr: " + short_number(options_.min_lr) +
                    " is not less than max_lr, " + short_number(options_.max_lr) + ". Give an interval to try.");
}

void LearningRateFinder::setup(Trainer&, LightningModule&, Stage stage) {
  if (stage == Stage::fit || searched_) return;
  throw ConfigError(
      with_name("it runs training steps, and this stage does not train. Call fit first, or drop the callback."));
}

void LearningRateFinder::on_fit_start(Trainer& trainer, LightningModule& module) {
  if (trainer.plan().fast_dev_run) return;
  if (!module.automatic_optimization()) {
    throw ConfigError(
        with_name("with manual optimization training_step decides what is stepped. Set the learning rate in "
                  "configure_optimizers, and drop the callback."));
  }
  if (!searched_) search(trainer);
  if (options_.update) TrialRuns::keep_learning_rate(trainer, factor_);
}

// The first step has min_lr and the last max_lr. In Lightning the first step is one ratio above min_lr.
double LearningRateFinder::lr_of(int64_t step) const {
  const double fraction = static_cast<double>(step) / static_cast<double>(options_.num_training - 1);
  if (options_.mode == LrSpacing::linear) return options_.min_lr + fraction * (options_.max_lr - options_.min_lr);
  return options_.min_lr * std::pow(options_.max_lr / options_.min_lr, fraction);
}

void LearningRateFinder::search(Trainer& trainer) {
  double configured = 0;
  {
    TrialRuns trials(trainer, kFinderName);
    configured = trials.learning_rate();
    if (configured == 0) {
      throw ConfigError(
          with_name("the first parameter group's learning rate is 0, to which no other rate has a ratio. Configure a "
                    "rate above 0."));
    }
    trials.try_learning_rates(
        options_.num_training, [this](int64_t step) { return lr_of(step); },
        [this](int64_t step, double loss) {
          curve_.add(lr_of(step), loss);
          return !options_.early_stop_threshold || !curve_.diverges(*options_.early_stop_threshold);
        });
  }
  searched_ = true;
  suggestion_ = curve_.suggestion();
  if (!options_.plot.empty() && trainer.global_rank() == 0) write_files();
  const std::string steps =
      count_of(curve_.points().size(), "step") + ", up to " + short_number(curve_.points().back().lr);
  if (!suggestion_) {
    return Console::instance().warn(with_name("nothing to suggest after " + steps + "; the learning rate stays " +
                                              short_number(configured) +
                                              ". Take more steps (num_training), or a smaller min_lr."));
  }
  factor_ = *suggestion_ / configured;
  Console::instance().print(with_name("the loss falls most steeply at " + short_number(*suggestion_) + " (" + steps +
                                      "). " + (options_.update ? "Training uses it" : "It is not used") +
                                      "; the configured rate is " + short_number(configured) + "."));
}

void LearningRateFinder::write_files() const {
  write_output(options_.plot, curve_.svg());
  write_output(std::filesystem::path(options_.plot).replace_extension(".csv").string(), curve_.csv());
}

State LearningRateFinder::state_dict() const {
  State state;
  if (!searched_) return state;
  state.set("factor", factor_);
  if (suggestion_) state.set("suggestion", *suggestion_);
  return state;
}

void LearningRateFinder::load_state_dict(const State& saved) {
  searched_ = true;
  factor_ = saved.get<double>("factor");
  if (saved.has("suggestion")) suggestion_ = saved.get<double>("suggestion");
}

}  // namespace levin
