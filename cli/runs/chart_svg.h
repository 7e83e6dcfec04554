// A chart as SVG, drawn without JavaScript. It is not drawn by core/files/svg.h, whose shapes have fixed colours: the
// colours of a page are classes of its style sheet, so that the dark theme, the legend and page.js can change them.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/runs/report_data.h"

namespace levin {

/// TensorBoard's default.
inline constexpr double kUsualSmoothing = 0.6;

/// `number` is the chart's place in the page, for ids. The smoothed curves with the raw ones beneath, over steps.
[[nodiscard]] std::string chart_svg(const Chart& chart, const std::vector<LegendKey>& keys, size_t number,
                                    double smoothing = kUsualSmoothing);

/// Lower and upper end of the axis for these values: all of them, or, where few (2 % at an end) are far away from the
/// rest, the others and the smoothed ones without their own outermost 1 %.
struct ValueRange {
  double low = 0;
  double high = 1;
};
[[nodiscard]] ValueRange value_range(std::vector<double> raw, std::vector<double> smoothed);

/// Round numbers within the range, about `wanted` of them, with their labels: 0.2, 0.4; 1k, 2k.
struct Tick {
  double value = 0;
  std::string label = "";
};
[[nodiscard]] std::vector<Tick> axis_ticks(double low, double high, int wanted);

}  // namespace levin
