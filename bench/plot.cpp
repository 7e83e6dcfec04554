#include "plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <stdexcept>

namespace bench {

namespace {

// All in pixels.
constexpr double kLeft = 70, kWidth = 620, kRight = 30, kTop = 50, kHeight = 220, kGap = 60, kBottom = 50;
constexpr std::array kColours = {"#1f5fa8", "#888888", "#b4541c"};

std::string number(double value) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), std::abs(value) >= 100 ? "%.0f" : "%.3g", value);
  return text.data();
}

std::string pixel(double value) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return result;
}

std::string label(double x, double y, const std::string& text, const std::string& more = "") {
  return "<text x=\"" + pixel(x) + "\" y=\"" + pixel(y) + "\"" + more + ">" + escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2) {
  return "<line x1=\"" + pixel(x1) + "\" y1=\"" + pixel(y1) + "\" x2=\"" + pixel(x2) + "\" y2=\"" + pixel(y2) +
         "\" stroke=\"#dddddd\"/>\n";
}

// The step of a scale of about five ticks up to `top`: 1, 2 or 5 times a power of ten.
double tick_step(double top) {
  const double power = std::pow(10, std::floor(std::log10(top / 5)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power * 5 >= top) return digit * power;
  }
  return 10 * power;
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

  [[nodiscard]] std::string draw() const {
    std::string svg;
    for (double tick = 0; tick <= highest_; tick += tick_step(highest_)) {
      svg += line(kLeft, y(tick), kLeft + kWidth, y(tick));
      svg += label(kLeft - 8, y(tick) + 4, number(tick), " text-anchor=\"end\"");
    }
    for (const double tick : measured_x_) {
      svg += line(x(tick), top_, x(tick), top_ + kHeight);
      svg += label(x(tick), top_ + kHeight + 16, number(tick), " text-anchor=\"middle\"");
    }
    return svg;
  }

 private:
  double top_;
  double highest_ = 0;
  std::set<double> all_x_ = {}, measured_x_ = {};
};

std::string draw_curve(const Curve& curve, const Axes& axes, const std::string& colour) {
  std::string places;
  for (const Point& point : curve.points) places += pixel(axes.x(point.x)) + "," + pixel(axes.y(point.y)) + " ";
  std::string svg = "<polyline points=\"" + places + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2\"" +
                    (curve.is_measured ? "" : " stroke-dasharray=\"5 4\"") + "/>\n";
  if (!curve.is_measured) return svg;
  for (const Point& point : curve.points) {
    const double x = axes.x(point.x), y = axes.y(point.y);
    svg += "<circle cx=\"" + pixel(x) + "\" cy=\"" + pixel(y) + "\" r=\"4\" fill=\"" + colour + "\"/>\n";
    svg += label(x, y - 9, number(point.y), " text-anchor=\"middle\" fill=\"" + colour + "\"");
  }
  return svg;
}

std::string draw_panel(const Plot& plot, const Panel& panel, double top) {
  const Axes axes(plot, panel, top);
  std::string svg = label(kLeft, top - 10, panel.title, " font-weight=\"bold\"") + axes.draw();
  double legend = kLeft + kWidth;  // from the right
  for (size_t k = 0; k < panel.curves.size(); ++k) {
    const std::string colour = kColours[k % kColours.size()];
    svg += draw_curve(panel.curves[k], axes, colour);
    svg += label(legend, top - 10, panel.curves[k].name, " text-anchor=\"end\" fill=\"" + colour + "\"");
    legend -= 7.0 * static_cast<double>(panel.curves[k].name.size()) + 20;
  }
  return svg;
}

}  // namespace

std::string plot_svg(const Plot& plot) {
  const auto panels = static_cast<double>(plot.panels.size());
  const double width = kLeft + kWidth + kRight, height = kTop + panels * (kHeight + kGap) - kGap + kBottom + 30;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + pixel(width) + "\" height=\"" +
                    pixel(height) + "\" font-family=\"sans-serif\" font-size=\"12\">\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
                    label(kLeft, 20, plot.title, " font-size=\"15\"");
  double top = kTop + 20;
  for (const Panel& panel : plot.panels) {
    svg += draw_panel(plot, panel, top);
    top += kHeight + kGap;
  }
  svg += label(kLeft + kWidth / 2, height - 12, plot.x_title, " text-anchor=\"middle\"");
  return svg + "</svg>\n";
}

void write_plot(const std::filesystem::path& path, const Plot& plot) {
  std::ofstream file(path);
  file << plot_svg(plot);
  if (!file.flush()) throw std::runtime_error(path.string() + ": cannot be written. Is there room, and the folder?");
}

}  // namespace bench
