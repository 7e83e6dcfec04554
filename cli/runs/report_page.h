// A report as one HTML page that needs nothing else: no network, and no JavaScript for what it shows.
#pragma once

#include <string>
#include <string_view>

#include "levin/cli/runs/report_data.h"

namespace levin {

/// The style sheet and the script of a page: report/page.css and report/page.js, compiled in.
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

[[nodiscard]] std::string report_page(const ReportData& data);

}  // namespace levin
