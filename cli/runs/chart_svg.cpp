#include "levin/cli/runs/chart_svg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "levin/cli/runs/html.h"
#include "levin/core/files/svg.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

// The same numbers are in report/page.js.
constexpr double kChartWidth = 420;
constexpr double kChartHeight = 236;
constexpr double kChartLeft = 48;
constexpr double kChartRight = 12;
constexpr double kChartTop = 10;
constexpr double kChartBottom = 26;

struct Frame {
  double first_step = 0;
  double last_step = 1;
  ValueRange range = {};

  [[nodiscard]] double x(double step) const {
    return kChartLeft + (step - first_step) / (last_step - first_step) * (kChartWidth - kChartLeft - kChartRight);
  }
  [[nodiscard]] double y(double value) const {
    const double place = (value / 2 - range.low / 2) / (range.high / 2 - range.low / 2);  // halves do not overflow
    const double down = kChartTop + (1 - place) * (kChartHeight - kChartTop - kChartBottom);
    return std::clamp(down, -1e4, 1e4);
  }
};

std::string path_of(const std::vector<int64_t>& steps, const std::vector<double>& values, const Frame& frame) {
  std::string path;
  std::string last;
  for (size_t k = 0; k < values.size(); ++k) {
    std::string point = pixels(frame.x(static_cast<double>(steps[k]))) + " " + pixels(frame.y(values[k]));
    if (point == last) continue;
    path += (path.empty() ? "M" : "L") + point;
    last = std::move(point);
  }
  return path;
}

std::string axes(const Frame& frame) {
  std::string out = "<g class=\"axis\">";
  for (const Tick& tick : axis_ticks(frame.range.low, frame.range.high, 5)) {
    const std::string y = pixels(frame.y(tick.value));
    out +=
        "<path class=\"grid\" d=\"M" + pixels(kChartLeft) + " " + y + "H" + pixels(kChartWidth - kChartRight) + "\"/>";
    out += "<text class=\"ty\" x=\"" + pixels(kChartLeft - 7) + "\" y=\"" + y + "\">" + tick.label + "</text>";
  }
  const std::string bottom = pixels(kChartHeight - kChartBottom);
  out += "<path class=\"base\" d=\"M" + pixels(kChartLeft) + " " + bottom + "H" + pixels(kChartWidth - kChartRight) +
         "\"/>";
  for (const Tick& tick : axis_ticks(frame.first_step, frame.last_step, 6)) {
    const double x = frame.x(tick.value);
    const char* anchor = x > kChartWidth - kChartRight - 12 ? " end" : "";
    out += "<text class=\"tx" + std::string(anchor) + "\" x=\"" + pixels(x) + "\" y=\"" + pixels(kChartHeight - 9) +
           "\">" + tick.label + "</text>";
  }
  return out + "</g>";
}

Frame frame_of(const Chart& chart, const std::vector<std::vector<double>>& smoothed) {
  Frame frame;
  std::vector<double> raw;
  std::vector<double> averages;
  frame.first_step = std::numeric_limits<double>::infinity();
  frame.last_step = -frame.first_step;
  for (size_t k = 0; k < chart.series.size(); ++k) {
    const Curve& curve = *chart.series[k].curve;
    raw.insert(raw.end(), curve.values.begin(), curve.values.end());
    averages.insert(averages.end(), smoothed[k].begin(), smoothed[k].end());
    for (const int64_t step : curve.steps) {
      frame.first_step = std::min(frame.first_step, static_cast<double>(step));
      frame.last_step = std::max(frame.last_step, static_cast<double>(step));
    }
  }
  if (!(frame.first_step < frame.last_step)) frame.last_step = frame.first_step + 1;
  if (frame.first_step > 0 && frame.first_step < 0.2 * frame.last_step) frame.first_step = 0;
  frame.range = value_range(std::move(raw), std::move(averages));
  return frame;
}

std::string curve_marks(const ChartSeries& series, int colour, const std::vector<double>& smoothed,
                        const Frame& frame) {
  const Curve& curve = *series.curve;
  const std::string look = "c" + std::to_string(colour) + " d" + std::to_string(series.dash % 4);
  std::string out = "<g class=\"" + look + "\" data-key=\"" + std::to_string(series.key) + "\">";
  out += "<path class=\"raw\" d=\"" + path_of(curve.steps, curve.values, frame) + "\"/>";
  out += "<path class=\"smooth\" d=\"" + path_of(curve.is_thinned() ? curve.mean_steps : curve.steps, smoothed, frame) +
         "\"/>";
  if (curve.values.size() <= kDottedPoints) {
    for (size_t k = 0; k < curve.values.size(); ++k) {
      out += "<circle r=\"2.2\" cx=\"" + pixels(frame.x(static_cast<double>(curve.steps[k]))) + "\" cy=\"" +
             pixels(frame.y(curve.values[k])) + "\"/>";
    }
  }
  if (curve.first_nonfinite_step >= 0) {
    const double x =
        frame.x(std::clamp(static_cast<double>(curve.first_nonfinite_step), frame.first_step, frame.last_step));
    out += "<path class=\"lost\" d=\"M" + pixels(x) + " " + pixels(kChartTop) + "V" +
           pixels(kChartHeight - kChartBottom) + "\"><title>not finite from here</title></path>";
  }
  return out + "</g>";
}

}  // namespace

ValueRange value_range(std::vector<double> raw, std::vector<double> smoothed) {
  if (raw.empty()) return {};
  std::sort(raw.begin(), raw.end());
  double low = raw.front();
  double high = raw.back();
  if (raw.size() >= 50) {
    const size_t cut = raw.size() / 50;
    const double inner_low = raw[cut];
    const double inner_high = raw[raw.size() - 1 - cut];
    const double inner = inner_high - inner_low;
    if (high - inner_high > 0.5 * inner) high = inner_high;
    if (inner_low - low > 0.5 * inner) low = inner_low;
    std::sort(smoothed.begin(), smoothed.end());
    const size_t end = smoothed.size() / 100;
    if (!smoothed.empty()) low = std::min(low, smoothed[end]);
    if (!smoothed.empty()) high = std::max(high, smoothed[smoothed.size() - 1 - end]);
  }
  double margin = 0.08 * (high / 2 - low / 2);
  if (!(margin > 1e-12 * std::max(std::abs(low), std::abs(high)))) margin = high == 0 ? 1 : 0.1 * std::abs(high);
  margin = std::max(margin, 1e-300);  // below the smallest normal numbers, differences have no digits
  constexpr double most = std::numeric_limits<double>::max();
  const bool touches_zero = low >= 0 && low - margin < 0.05 * high;
  return {touches_zero ? 0 : std::max(low - margin, -most), std::min(high + margin, most)};
}

std::vector<Tick> axis_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  if (!(high > low) || !std::isfinite(high - low)) return ticks;
  const double step = tick_step(high - low, wanted);
  const double most = std::max(std::abs(low), std::abs(high));
  const double unit = most >= 1e4 && most < 1e7 ? 1e3 : most >= 1e7 && most < 1e10 ? 1e6 : 1;
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step / unit) + 1e-9)));
  const bool plain = most < 1e10 && step / unit >= 0.9e-4;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && ticks.size() < 50; ++k) {
    const double value = k * step;
    if (!std::isfinite(value)) break;
    const std::string number = formatted(plain ? "%.*f" : "%.*g", plain ? decimals : 3, value / unit + 0.0);
    ticks.push_back({value, value == 0 ? "0" : number + (unit == 1e3 ? "k" : unit == 1e6 ? "M" : "")});
  }
  return ticks;
}

std::string chart_svg(const Chart& chart, const std::vector<LegendKey>& keys, size_t number, double smoothing) {
  std::vector<std::vector<double>> smoothed;
  for (const auto& series : chart.series) smoothed.push_back(smoothed_values(*series.curve, smoothing));
  const Frame frame = frame_of(chart, smoothed);
  const std::string id = "f" + std::to_string(number);
  std::string out =
      "<svg viewBox=\"0 0 420 236\" role=\"img\" aria-label=\"" + html_text(chart.title) + " over steps\">";
  out += "<clipPath id=\"" + id + "\"><rect x=\"" + pixels(kChartLeft) + "\" y=\"" + pixels(kChartTop - 3) +
         "\" width=\"" + pixels(kChartWidth - kChartLeft - kChartRight + 3) + "\" height=\"" +
         pixels(kChartHeight - kChartTop - kChartBottom + 5) + "\"/></clipPath>";
  out += axes(frame) + "<g clip-path=\"url(#" + id + ")\">";
  for (size_t k = 0; k < chart.series.size(); ++k) {
    const ChartSeries& series = chart.series[k];
    out += curve_marks(series, keys[static_cast<size_t>(series.key)].colour, smoothed[k], frame);
  }
  return out + "</g></svg>";
}

}  // namespace levin
