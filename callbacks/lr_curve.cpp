#include "levin/callbacks/lr_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "levin/core/config_node.h"

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

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return "<text x=\"" + text_of("%.1f", x) + "\" y=\"" + text_of("%.1f", y) + "\" text-anchor=\"" + anchor + "\">" +
         text + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* color) {
  return "<line x1=\"" + text_of("%.1f", x1) + "\" y1=\"" + text_of("%.1f", y1) + "\" x2=\"" + text_of("%.1f", x2) +
         "\" y2=\"" + text_of("%.1f", y2) + "\" stroke=\"" + color + "\"/>\n";
}

// From data to picture.
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

std::string axes(const Frame& frame, bool logarithmic) {
  std::string out = line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "#444") +
                    line(kLeft, kTop, kLeft, kHeight - kBottom, "#444");
  constexpr int kTicks = 5;
  for (int k = 0; k <= kTicks; ++k) {
    const double share = static_cast<double>(k) / kTicks;
    const double px = frame.x_low + share * (frame.x_high - frame.x_low);
    const double py = frame.y_low + share * (frame.y_high - frame.y_low);
    const double lr = logarithmic ? std::pow(10.0, px) : px;
    out += text_at(frame.x(px), kHeight - kBottom + 20, "middle", text_of("%.2g", lr));
    out += text_at(kLeft - 8, frame.y(py) + 4, "end", text_of("%.4g", py));
    out += line(kLeft, frame.y(py), kWidth - kRight, frame.y(py), "#ddd");
  }
  return out + text_at(kWidth / 2, kHeight - 15, "middle", "learning rate") +
         text_at(kLeft, kTop - 12, "start", "smoothed loss");
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
  return !std::isfinite(last) || (points_.size() > 1 && last > threshold * best_);
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
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"440\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"720\" height=\"440\" fill=\"white\"/>\n" +
      axes(frame, logarithmic_) + "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" points=\"";
  const auto suggested = suggestion();
  std::string mark;
  for (const Point& point : points_) {
    if (!std::isfinite(point.loss)) continue;
    const std::string x = text_of("%.1f", frame.x(axis(point.lr))), y = text_of("%.1f", frame.y(point.loss));
    out += x + "," + y + " ";
    if (suggested && point.lr == *suggested) {
      mark = "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"5\" fill=\"#c33\"/>\n" +
             text_at(kWidth - kRight, kTop - 12, "end", "suggestion " + text_of("%.3g", *suggested));
    }
  }
  return out + "\"/>\n" + mark + "</svg>\n";
}

}  // namespace levin
