#include "levin/models/onnx/batch_number.h"

#include <utility>

namespace levin::onnx {

int64_t BatchNumber::at(const TracePoint& point) const {
  return per_sample * point.batch + rest + per_position * point.length + per_both * point.batch * point.length;
}

bool BatchNumber::is_negative() const {
  if (is_fixed()) return rest < 0;
  return per_both != 0 ? per_both < 0 : per_sample <= 0 && per_position <= 0;
}

BatchNumber operator+(const BatchNumber& one, const BatchNumber& other) {
  return {one.per_sample + other.per_sample, one.rest + other.rest, one.per_position + other.per_position,
          one.per_both + other.per_both};
}

BatchNumber operator*(const BatchNumber& number, int64_t factor) {
  return {number.per_sample * factor, number.rest * factor, number.per_position * factor, number.per_both * factor};
}

std::string BatchNumber::text() const {
  std::string text;
  const std::pair<int64_t, const char*> terms[] = {
      {per_both, "batch*length"}, {per_sample, "batch"}, {per_position, "length"}};
  for (const auto& [factor, name] : terms) {
    if (factor == 0) continue;
    text += text.empty() || factor < 0 ? "" : "+";
    text += factor == 1 ? name : std::to_string(factor) + "*" + name;
  }
  if (text.empty()) return std::to_string(rest);
  return rest == 0 ? text : text + (rest > 0 ? "+" : "") + std::to_string(rest);
}

// Sizes that models rarely have by chance, and none for which PyTorch has rules of its own, as it has for 1.
std::vector<TracePoint> trace_points(int64_t length) {
  if (length == 0) return {{2, 0}, {3, 0}, {5, 0}};
  return {{2, length}, {3, length}, {2, length - 1}, {3, length - 1}, {5, length - 2}, {3, length - 2}};
}

std::optional<BatchNumber> fit_batch_number(const std::vector<TracePoint>& points, const std::vector<int64_t>& values) {
  if (values.size() < 2) return BatchNumber{0, values.at(0)};
  BatchNumber number;
  const bool has_length = points.front().length != 0;
  number.per_sample = values[1] - values[0];  // of one sample more
  if (has_length) {                           // and of one position less
    number.per_both = number.per_sample - (values[3] - values[2]);
    number.per_sample -= number.per_both * points[0].length;
    number.per_position = values[0] - values[2] - number.per_both * points[0].batch;
  }
  number.rest = values[0] - BatchNumber{number.per_sample, 0, number.per_position, number.per_both}.at(points[0]);
  for (size_t k = 0; k < values.size(); ++k) {
    if (number.at(points[k]) != values[k]) return std::nullopt;
  }
  return number;
}

}  // namespace levin::onnx
