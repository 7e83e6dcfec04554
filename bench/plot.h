// Curves over one axis of numbers, as an SVG chart: stacked panels share the axis.
//
//   bench::Panel memory{"peak memory, MiB", {{"measured", {{2, 70.1}, {8, 21.5}}}}};
//   bench::write_plot("build/bench/thousand_layers.svg", {"A thousand Linear layers", "segments", {memory, time}});
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bench {

struct Point {
  double x = 0, y = 0;
};

struct Curve {
  std::string name;
  std::vector<Point> points;
  bool is_measured = true;  // with a mark and its number at each point; else dashed
};

struct Panel {
  std::string title;
  std::vector<Curve> curves;
};

struct Plot {
  std::string title;
  std::string x_title;
  std::vector<Panel> panels;
};

/// Returns the chart; x is logarithmic, y starts at 0. Numbers must be finite, x above 0, and there must be two of
/// them.
[[nodiscard]] std::string plot_svg(const Plot& plot);

/// Throws std::runtime_error naming the file if it cannot be written.
void write_plot(const std::filesystem::path& path, const Plot& plot);

}  // namespace bench
