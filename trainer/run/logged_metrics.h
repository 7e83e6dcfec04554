// The newest value of everything that a run has logged.
#pragma once

#include "levin/loggers/log_values.h"
#include "levin/trainer/metrics.h"

namespace levin {

/// The newest values by name. A step's row is stored unchanged; names are looked up when the values are read.
class LoggedMetrics {
 public:
  LoggedMetrics() = default;
  LoggedMetrics(Metrics values) : values_(std::move(values)) {}

  void set(const std::string& name, double value);
  void set(MetricRow row);
  [[nodiscard]] const Metrics& values() const;

 private:
  void merge() const;

  mutable Metrics values_ = {};  // without `newest_`
  mutable MetricRow newest_ = {};
};

}  // namespace levin
