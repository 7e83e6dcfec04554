#include "levin/callbacks/lr_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "levin/core/config_node.h"
#include "levin/core/svg.h"

namespace levin {

namespace {

constexpr double kSmoothing = 0.98;
constexpr size_t kSkippedAtStart = 10;
constexpr size_t kSkippedAtEnd = 1;

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 80, kRight = 20, kTop = 40, kBottom = 60;

std::string text_of(const char* format, double value) {
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// Maps data to the picture.
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

// Round numbers within a range; powers of ten where the numbers are logarithms.
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
    svg.text({frame.x(px), kFoot + 20}, text_of("%.3g", lr), {.anchor = Svg::Anchor::middle});
  }
  for (const double py : ticks(frame.y_low, frame.y_high, 0)) {
    svg.text({kLeft - 8, frame.y(py) + 4}, text_of("%.4g", py), {.anchor = Svg::Anchor::end});
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
  // Of a loss above 0 this is threshold * best; a loss may also be negative, as a log-likelihood is.
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
    svg.text({kWidth - kRight, kTop - 12}, "suggestion " + text_of("%.3g", *suggested), {.anchor = Svg::Anchor::end});
  }
  return svg.str();
}

}  // namespace levin
