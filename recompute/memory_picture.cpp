#include "levin/recompute/memory_picture.h"

#include <algorithm>
#include <array>

#include "levin/core/files/svg.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

// Pixels.
constexpr double kWidth = 1000, kHeight = 560;
constexpr double kLeft = 84, kRight = 290, kTop = 56, kBottom = 62;
constexpr double kText = 13;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;

constexpr std::array kBandColours{"#d9e2ec", "#bccddd", "#e9e3d5", "#d5e8d4", "#e3d9ec", "#dce9e8"};
constexpr Svg::LineStyle kBudgetLine{.colour = "#b00020", .width = 1.5, .dashed = true};

std::string bytes_of(int64_t bytes) {
  return bytes_text(static_cast<uint64_t>(bytes));
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

// One axis: maps numbers to pixels, and places its labels.
struct Axis {
  Axis(double largest, const std::vector<Unit>& units) : most(std::max(largest, 1e-9)), unit(unit_for(most, units)) {
    step = tick_step(most / unit.size, 6) * unit.size;
  }
  [[nodiscard]] std::string text(double value) const { return formatted("%g", value / unit.size); }

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
    svg_.text({kLeft, 30}, picture_.title, {.size = 17, .bold = true});
    draw_bands();
    draw_axes();
    draw_budget();
    for (size_t k = 0; k < picture_.curves.size(); ++k) draw_curve(k);
    return svg_.str();
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
    if (most > 2 * peak) most = 0;  // a budget far above would squeeze the curves
    return static_cast<double>(std::max(most, peak));
  }

  [[nodiscard]] double x(double seconds) const { return kLeft + seconds / time_.most * kPlotWidth; }
  [[nodiscard]] double y(double bytes) const { return kTop + (1 - bytes / bytes_.most) * kPlotHeight; }

  // Names are shown next to the band if it is high enough, and always in the legend.
  void draw_bands() {
    const ChainCost& cost = *picture_.cost;
    std::vector<std::pair<const char*, int64_t>> bands{{"parameters", cost.parameters},
                                                       {"optimizer state", cost.optimizer_state},
                                                       {"batch", cost.inputs},
                                                       {"gradients", cost.gradients}};
    if (cost.callbacks > 0) bands.emplace_back("callbacks", cost.callbacks);
    if (cost.workspaces > 0) bands.emplace_back("workspaces", cost.workspaces);
    double below = 0;
    double row = kTop + 24 * static_cast<double>(picture_.curves.size() + (shows_budget() ? 1 : 0)) + 34;
    for (size_t k = bands.size(); k-- > 0;) {  // the topmost band first, as they lie
      svg_.box({kWidth - kRight + 24, row - 10}, 16, 12, kBandColours[k]);
      legend(row, std::string(bands[k].first) + ", " + bytes_of(bands[k].second));
      row += 24;
    }
    for (size_t k = 0; k < bands.size(); ++k) {
      const double above = below + static_cast<double>(bands[k].second);
      svg_.box({kLeft, y(above)}, kPlotWidth, y(below) - y(above), kBandColours[k]);
      below = above;
    }
  }

  void draw_axes() {
    constexpr double kFoot = kTop + kPlotHeight;
    for (double value = 0; value <= bytes_.most; value += bytes_.step) {
      svg_.line({kLeft, y(value)}, {kLeft + kPlotWidth, y(value)}, {.colour = "#dddddd"});
      svg_.text({kLeft - 8, y(value) + 4.5}, bytes_.text(value), {.anchor = Svg::Anchor::end, .size = kText});
    }
    for (double value = 0; value <= time_.most * 1.0001; value += time_.step) {
      svg_.line({x(value), kFoot}, {x(value), kFoot + 5});
      svg_.text({x(value), kFoot + 21}, time_.text(value), {.anchor = Svg::Anchor::middle, .size = kText});
    }
    svg_.line({kLeft, kTop}, {kLeft, kFoot});
    svg_.line({kLeft, kFoot}, {kLeft + kPlotWidth, kFoot});
    svg_.text({kLeft + kPlotWidth / 2, kHeight - 18}, std::string("time in the step, ") + time_.unit.name,
              {.anchor = Svg::Anchor::middle, .size = kText});
    svg_.text({24, kTop + kPlotHeight / 2}, std::string("memory held, ") + bytes_.unit.name,
              {.anchor = Svg::Anchor::middle, .size = kText, .upwards = true});
  }

  [[nodiscard]] bool shows_budget() const {
    return picture_.budget && static_cast<double>(*picture_.budget) <= bytes_.most;
  }

  void draw_budget() {
    if (!shows_budget()) return;
    const auto budget = static_cast<double>(*picture_.budget);
    svg_.line({kLeft, y(budget)}, {kLeft + kPlotWidth, y(budget)}, kBudgetLine);
    const double row = kTop + 24 * static_cast<double>(picture_.curves.size()) + 8;
    svg_.line({kWidth - kRight + 20, row - 4}, {kWidth - kRight + 44, row - 4}, kBudgetLine);
    legend(row, "budget, " + bytes_of(*picture_.budget));
  }

  void draw_curve(size_t index) {
    const PictureCurve& curve = picture_.curves[index];
    const char* colour = Svg::kColours[index % Svg::kColours.size()];
    std::vector<Svg::Point> points;
    for (const CurvePoint& point : curve.prediction.curve) {
      points.push_back({x(point.seconds), y(static_cast<double>(point.bytes))});
    }
    svg_.curve(points, {.colour = colour, .width = 1.8});
    const double row = kTop + 24 * static_cast<double>(index) + 8;
    svg_.line({kWidth - kRight + 20, row - 4}, {kWidth - kRight + 44, row - 4}, {.colour = colour, .width = 2.5});
    legend(row, curve.name + ", " + bytes_of(curve.prediction.peak));
  }

  void legend(double row, const std::string& text) { svg_.text({kWidth - kRight + 52, row}, text, {.size = kText}); }

  const MemoryPicture& picture_;
  Axis time_;
  Axis bytes_;
  Svg svg_{kWidth, kHeight};
};

}  // namespace

std::string draw_memory(const MemoryPicture& picture) {
  return Drawing(picture).text();
}

}  // namespace levin
