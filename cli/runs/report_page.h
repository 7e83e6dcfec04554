// A report as one HTML page that needs nothing else: no network, and no JavaScript for what it shows.
#pragma once

#include <string>

#include "levin/cli/runs/report_data.h"

namespace levin {

[[nodiscard]] std::string report_page(const ReportData& data);

}  // namespace levin
