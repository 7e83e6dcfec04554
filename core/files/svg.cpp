#include "levin/core/files/svg.h"

#include <cmath>

#include "levin/core/files/xml_tree.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

const char* word(Svg::Anchor anchor) {
  return anchor == Svg::Anchor::start ? "start" : anchor == Svg::Anchor::middle ? "middle" : "end";
}

std::string stroke(const Svg::LineStyle& style) {
  return formatted("stroke=\"%s\" stroke-width=\"%g\"%s/>\n", style.colour, style.width,
                   style.dashed ? " stroke-dasharray=\"6 4\"" : "");
}

}  // namespace

Svg::Svg(double width, double height)
    : shapes_(formatted("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                        "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n",
                        width, height, width, height)) {
  box({0, 0}, width, height, "#ffffff");
}

void Svg::text(Point at, const std::string& text, const TextStyle& style) {
  shapes_ += style.upwards ? formatted("<text transform=\"translate(%.1f %.1f) rotate(-90)\"", at.x, at.y)
                           : formatted("<text x=\"%.1f\" y=\"%.1f\"", at.x, at.y);
  shapes_ += formatted(" text-anchor=\"%s\" font-size=\"%g\"%s fill=\"%s\">", word(style.anchor), style.size,
                       style.bold ? " font-weight=\"bold\"" : "", style.colour);
  shapes_ += xml_text(text) + "</text>\n";
}

void Svg::line(Point from, Point to, const LineStyle& style) {
  shapes_ += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", from.x, from.y, to.x, to.y);
  shapes_ += stroke(style);
}

void Svg::curve(const std::vector<Point>& points, const LineStyle& style) {
  shapes_ += "<polyline fill=\"none\" stroke-linejoin=\"round\" points=\"";
  for (const Point& point : points) shapes_ += formatted("%.1f,%.1f ", point.x, point.y);
  shapes_ += "\" " + stroke(style);
}

void Svg::box(Point corner, double width, double height, const char* colour) {
  shapes_ += formatted("<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\"/>\n", corner.x, corner.y,
                       width, height, colour);
}

void Svg::dot(Point centre, double radius, const char* colour) {
  shapes_ += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", centre.x, centre.y, radius, colour);
}

double tick_step(double range, int wanted) {
  const double rough = range / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= rough * (1 - 1e-9)) return digit * power;
  }
  return 10 * power;
}

}  // namespace levin
