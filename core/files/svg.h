// A drawing in SVG, shape after shape. Positions and sizes are in pixels, y points down. Text is escaped.
//
//   Svg chart(720, 440);
//   chart.curve({{80, 400}, {300, 120}, {700, 60}}, {.colour = Svg::kColours[0], .width = 2});
//   chart.text({360, 425}, "learning rate", {.anchor = Svg::Anchor::middle});
//   write_file_durably("lr.svg", chart.str());
#pragma once

#include <array>
#include <string>
#include <vector>

namespace levin {

class Svg {
 public:
  // Okabe and Ito's colours, which colour-blind readers can tell apart.
  static constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"};

  struct Point {
    double x = 0, y = 0;
  };
  enum class Anchor { start, middle, end };
  struct TextStyle {
    Anchor anchor = Anchor::start;
    double size = 12;
    bool bold = false;
    const char* colour = "#222222";
    bool upwards = false;  // read from below to above
  };
  struct LineStyle {
    const char* colour = "#444444";
    double width = 1;
    bool dashed = false;
  };

  Svg(double width, double height);

  void text(Point at, const std::string& text) { this->text(at, text, TextStyle()); }
  void text(Point at, const std::string& text, const TextStyle& style);
  void line(Point from, Point to) { line(from, to, LineStyle()); }
  void line(Point from, Point to, const LineStyle& style);
  void curve(const std::vector<Point>& points, const LineStyle& style);
  void box(Point corner, double width, double height, const char* colour);
  void dot(Point centre, double radius, const char* colour);

  /// Returns the content of an .svg file.
  [[nodiscard]] std::string str() const { return shapes_ + "</svg>\n"; }

 private:
  std::string shapes_;
};

/// The step of an axis: 1, 2 or 5 times a power of ten, the smallest with which `wanted` of them reach `range` (above
/// 0).
[[nodiscard]] double tick_step(double range, int wanted);

}  // namespace levin
