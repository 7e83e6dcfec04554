// The text format in which Prometheus reads values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace levin {

/// The samples of one gauge.
struct PrometheusGauge {
  using Labels = std::vector<std::pair<std::string, std::string>>;
  std::string name = "";
  std::string help = "";
  std::vector<std::pair<Labels, double>> samples = {};
};

/// With HELP and TYPE lines, label values escaped; gauges without samples are left out.
[[nodiscard]] std::string prometheus_text(const std::vector<PrometheusGauge>& gauges);

}  // namespace levin
