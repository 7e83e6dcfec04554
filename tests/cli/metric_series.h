// A metric of a run, made up for a test.
#pragma once

#include <cstdint>

#include "levin/cli/runs/metrics_reader.h"

namespace levin::test {

/// `count` values value(0), value(1), …, at steps 0, 10, 20, …
template <class Function>
MetricSeries series_of(int64_t count, const Function& value) {
  MetricSeries series;
  for (int64_t k = 0; k < count; ++k) {
    series.steps.push_back(10 * k);
    series.values.push_back(value(k));
  }
  return series;
}

}  // namespace levin::test
