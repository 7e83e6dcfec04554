#include "levin/recompute/memory_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "levin/core/tensor_text.h"

namespace levin {

namespace {

// Pixels.
constexpr double kWidth = 1000, kHeight = 560;
constexpr double kLeft = 84, kRight = 290, kTop = 56, kBottom = 62;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;

// Okabe and Ito's colours, which colour-blind readers can tell apart.
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"};
constexpr std::array kBandColours{"#d9e2ec", "#bccddd", "#e9e3d5", "#d5e8d4"};

template <class... Numbers>
std::string format(const char* pattern, Numbers... numbers) {
  std::array<char, 512> text = {};
  std::snprintf(text.data(), text.size(), pattern, numbers...);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string label(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more) + escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style);
}

// 1, 2 or 5 times a power of ten, so that about `wanted` steps reach `most`.
double step_for(double most, int wanted) {
  const double rough = most / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

struct Unit {
  const char* name;
  double size;
};

Unit unit_for(double most, const std::vector<Unit>& units) {
  Unit chosen = units[0];
  for (const Unit& unit : units) chosen = most >= unit.size ? unit : chosen;
  return chosen;
}

// One axis: numbers to pixels, and where its labels stand.
struct Axis {
  Axis(double largest, const std::vector<Unit>& units) : most(std::max(largest, 1e-9)), unit(unit_for(most, units)) {
    step = step_for(most / unit.size, 6) * unit.size;
  }
  [[nodiscard]] std::string text(double value) const { return format("%g", value / unit.size); }

  double most;
  Unit unit;
  double step = 1;
};

class Drawing {
 public:
  explicit Drawing(const MemoryPicture& picture)
      : picture_(picture),
        time_(longest(picture), {{"µs", 1e-6}, {"ms", 1e-3}, {"s", 1.0}}),
        bytes_(1.06 * largest(picture),
               {{"B", 1.0}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}}) {}

  std::string text() {
    out_ = format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" ",
                  kWidth, kHeight, kWidth, kHeight);
    out_ += "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222\">\n";
    out_ += format("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", kWidth, kHeight);
    out_ += label(kLeft, 30, "start", picture_.title, " font-size=\"17\" font-weight=\"bold\"");
    draw_bands();
    draw_axes();
    draw_budget();
    for (size_t k = 0; k < picture_.curves.size(); ++k) draw_curve(k);
    return out_ + "</svg>\n";
  }

 private:
  static double longest(const MemoryPicture& picture) {
    double most = 0;
    for (const auto& curve : picture.curves) most = std::max(most, curve.prediction.seconds);
    return most;
  }
  static double largest(const MemoryPicture& picture) {
    int64_t most = picture.budget.value_or(0);
    int64_t peak = 1;
    for (const auto& curve : picture.curves) peak = std::max(peak, curve.prediction.peak);
    if (most > 2 * peak) most = 0;  // a budget far above would leave the curves on the ground
    return static_cast<double>(std::max(most, peak));
  }

  [[nodiscard]] double x(double seconds) const { return kLeft + seconds / time_.most * kPlotWidth; }
  [[nodiscard]] double y(double bytes) const { return kTop + (1 - bytes / bytes_.most) * kPlotHeight; }

  // Names stand beside the band if it is high enough, and always in the legend.
  void draw_bands() {
    const ChainCost& cost = *picture_.cost;
    const std::array<std::pair<const char*, int64_t>, 4> bands{{{"parameters", cost.parameters},
                                                                {"optimizer state", cost.optimizer_state},
                                                                {"batch", cost.inputs},
                                                                {"gradients", cost.gradients}}};
    double below = 0;
    double row = kTop + 24 * static_cast<double>(picture_.curves.size() + (shows_budget() ? 1 : 0)) + 34;
    for (size_t k = bands.size(); k-- > 0;) {  // the topmost band first, as they lie
      out_ += format("<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"12\" fill=\"%s\" stroke=\"#999\" ",
                     kWidth - kRight + 24, row - 10, kBandColours[k]) +
              "stroke-width=\"0.5\"/>\n";
      out_ += label(kWidth - kRight + 52, row, "start",
                    std::string(bands[k].first) + ", " + bytes_text(static_cast<uint64_t>(bands[k].second)));
      row += 24;
    }
    for (size_t k = 0; k < bands.size(); ++k) {
      const double above = below + static_cast<double>(bands[k].second);
      out_ += format("<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\"/>\n", kLeft, y(above),
                     kPlotWidth, y(below) - y(above), kBandColours[k]);
      below = above;
    }
  }

  void draw_axes() {
    for (double value = 0; value <= bytes_.most; value += bytes_.step) {
      out_ += line(kLeft, y(value), kLeft + kPlotWidth, y(value), "stroke=\"#000\" stroke-opacity=\"0.1\"");
      out_ += label(kLeft - 8, y(value) + 4.5, "end", bytes_.text(value));
    }
    for (double value = 0; value <= time_.most * 1.0001; value += time_.step) {
      out_ += line(x(value), kTop + kPlotHeight, x(value), kTop + kPlotHeight + 5, "stroke=\"#444\"");
      out_ += label(x(value), kTop + kPlotHeight + 21, "middle", time_.text(value));
    }
    out_ += line(kLeft, kTop, kLeft, kTop + kPlotHeight, "stroke=\"#444\"");
    out_ += line(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, "stroke=\"#444\"");
    out_ += label(kLeft + kPlotWidth / 2, kHeight - 18, "middle", std::string("time in the step, ") + time_.unit.name);
    out_ += label(0, 0, "middle", std::string("memory held, ") + bytes_.unit.name,
                  format(" transform=\"translate(24 %.1f) rotate(-90)\"", kTop + kPlotHeight / 2).c_str());
  }

  [[nodiscard]] bool shows_budget() const {
    return picture_.budget && static_cast<double>(*picture_.budget) <= bytes_.most;
  }

  void draw_budget() {
    if (!shows_budget()) return;
    const char* style = "stroke=\"#b00020\" stroke-width=\"1.5\" stroke-dasharray=\"7 5\"";
    const auto budget = static_cast<double>(*picture_.budget);
    out_ += line(kLeft, y(budget), kLeft + kPlotWidth, y(budget), style);
    const double row = kTop + 24 * static_cast<double>(picture_.curves.size()) + 8;
    out_ += line(kWidth - kRight + 20, row - 4, kWidth - kRight + 44, row - 4, style);
    out_ += label(kWidth - kRight + 52, row, "start", "budget, " + bytes_text(static_cast<uint64_t>(*picture_.budget)));
  }

  void draw_curve(size_t index) {
    const PictureCurve& curve = picture_.curves[index];
    const char* colour = kColours[index % kColours.size()];
    out_ += format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" stroke-linejoin=\"round\" points=\"",
                   colour);
    for (const CurvePoint& point : curve.prediction.curve) {
      out_ += format("%.1f,%.1f ", x(point.seconds), y(static_cast<double>(point.bytes)));
    }
    out_ += "\"/>\n";
    const double row = kTop + 24 * static_cast<double>(index) + 8;
    out_ += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2.5\"/>\n",
                   kWidth - kRight + 20, row - 4, kWidth - kRight + 44, row - 4, colour);
    out_ += label(kWidth - kRight + 52, row, "start",
                  curve.name + ", " + bytes_text(static_cast<uint64_t>(curve.prediction.peak)));
  }

  const MemoryPicture& picture_;
  Axis time_;
  Axis bytes_;
  std::string out_ = "";
};

}  // namespace

std::string draw_memory(const MemoryPicture& picture) {
  return Drawing(picture).text();
}

}  // namespace levin
