#include "levin/trainer/run/logged_metrics.h"

#include <utility>

namespace levin {

void LoggedMetrics::set(const std::string& name, double value) {
  merge();
  values_[name] = value;
}

void LoggedMetrics::set(MetricRow row) {
  if (row.names != newest_.names) merge();
  newest_ = std::move(row);
}

const Metrics& LoggedMetrics::values() const {
  merge();
  return values_;
}

void LoggedMetrics::merge() const {
  for (size_t k = 0; k < newest_.values.size(); ++k) values_[newest_.names->at(k)] = newest_.values[k];
  newest_ = MetricRow();
}

}  // namespace levin
