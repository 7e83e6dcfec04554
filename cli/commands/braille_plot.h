// A curve drawn with braille characters, each of which has two by four dots.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

struct BraillePlot {
  std::vector<std::string> rows = {};  // from top to bottom, all of the same number of characters
  double low = 0;                      // the value at the bottom, and at the top
  double high = 0;
  int64_t first = 0;  // the step at the left, and at the right
  int64_t last = 0;
};

/// `columns` by `rows` characters. Of several values in one column of dots all are covered, so that a peak is never
/// lost. Values that are not finite leave a gap. `rows` is empty if there is no finite value, or no room.
[[nodiscard]] BraillePlot braille_plot(const std::vector<int64_t>& steps, const std::vector<double>& values,
                                       int columns, int rows);

}  // namespace levin
