#include "plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <stdexcept>

#include "levin/core/files/svg.h"

namespace bench {

namespace {

// All in pixels.
constexpr double kLeft = 70, kWidth = 620, kRight = 30, kTop = 50, kHeight = 220, kGap = 60, kBottom = 50;
constexpr levin::Svg::LineStyle kGrid{.colour = "#dddddd"};
using Anchor = levin::Svg::Anchor;

std::string number(double value) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), std::abs(value) >= 100 ? "%.0f" : "%.3g", value);
  return text.data();
}

class Axes {
 public:
  Axes(const Plot& plot, const Panel& panel, double top) : top_(top) {
    for (const Panel& any : plot.panels) {
      for (const Curve& curve : any.curves) {
        for (const Point& point : curve.points) all_x_.insert(point.x);
      }
    }
    for (const Curve& curve : panel.curves) {
      for (const Point& point : curve.points) highest_ = std::max(highest_, point.y);
      if (!curve.is_measured) continue;
      for (const Point& point : curve.points) measured_x_.insert(point.x);
    }
    highest_ = highest_ > 0 ? highest_ * 1.08 : 1;
  }
  [[nodiscard]] double x(double value) const {
    const double low = std::log(*all_x_.begin()), high = std::log(*all_x_.rbegin());
    return kLeft + kWidth * (std::log(value) - low) / (high - low);
  }
  [[nodiscard]] double y(double value) const { return top_ + kHeight * (1 - value / highest_); }

  void draw(levin::Svg& svg) const {
    const double step = levin::tick_step(highest_, 5);
    for (double tick = 0; tick <= highest_; tick += step) {
      svg.line({kLeft, y(tick)}, {kLeft + kWidth, y(tick)}, kGrid);
      svg.text({kLeft - 8, y(tick) + 4}, number(tick), {.anchor = Anchor::end});
    }
    for (const double tick : measured_x_) {
      svg.line({x(tick), top_}, {x(tick), top_ + kHeight}, kGrid);
      svg.text({x(tick), top_ + kHeight + 16}, number(tick), {.anchor = Anchor::middle});
    }
  }

 private:
  double top_;
  double highest_ = 0;
  std::set<double> all_x_ = {}, measured_x_ = {};
};

void draw_curve(levin::Svg& svg, const Curve& curve, const Axes& axes, const char* colour) {
  std::vector<levin::Svg::Point> places;
  for (const Point& point : curve.points) places.push_back({axes.x(point.x), axes.y(point.y)});
  svg.curve(places, {.colour = colour, .width = 2, .dashed = !curve.is_measured});
  if (!curve.is_measured) return;
  for (size_t k = 0; k < places.size(); ++k) {
    svg.dot(places[k], 4, colour);
    svg.text({places[k].x, places[k].y - 9}, number(curve.points[k].y), {.anchor = Anchor::middle, .colour = colour});
  }
}

void draw_panel(levin::Svg& svg, const Plot& plot, const Panel& panel, double top) {
  const Axes axes(plot, panel, top);
  svg.text({kLeft, top - 10}, panel.title, {.bold = true});
  axes.draw(svg);
  double legend = kLeft + kWidth;  // from the right
  for (size_t k = 0; k < panel.curves.size(); ++k) {
    const char* colour = levin::Svg::kColours[k % levin::Svg::kColours.size()];
    draw_curve(svg, panel.curves[k], axes, colour);
    svg.text({legend, top - 10}, panel.curves[k].name, {.anchor = Anchor::end, .colour = colour});
    legend -= 7.0 * static_cast<double>(panel.curves[k].name.size()) + 20;
  }
}

}  // namespace

std::string plot_svg(const Plot& plot) {
  const auto panels = static_cast<double>(plot.panels.size());
  const double width = kLeft + kWidth + kRight, height = kTop + panels * (kHeight + kGap) - kGap + kBottom + 30;
  levin::Svg svg(width, height);
  svg.text({kLeft, 20}, plot.title, {.size = 15});
  double top = kTop + 20;
  for (const Panel& panel : plot.panels) {
    draw_panel(svg, plot, panel, top);
    top += kHeight + kGap;
  }
  svg.text({kLeft + kWidth / 2, height - 12}, plot.x_title, {.anchor = Anchor::middle});
  return svg.str();
}

void write_plot(const std::filesystem::path& path, const Plot& plot) {
  std::ofstream file(path);
  file << plot_svg(plot);
  if (!file.flush()) throw std::runtime_error(path.string() + ": cannot be written. Is there room, and the folder?");
}

}  // namespace bench
