// The later parts of a report, each as HTML with everything from files escaped; "" where no run says anything about it.
#pragma once

#include <string>

#include "levin/cli/runs/report_data.h"

namespace levin {

[[nodiscard]] std::string options_section(const ReportData& data);
[[nodiscard]] std::string time_section(const ReportData& data);
[[nodiscard]] std::string memory_section(const ReportData& data);
[[nodiscard]] std::string checkpoints_section(const ReportData& data);
[[nodiscard]] std::string system_section(const ReportData& data);
[[nodiscard]] std::string errors_section(const ReportData& data);

}  // namespace levin
