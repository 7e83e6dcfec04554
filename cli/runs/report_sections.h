// The parts of a report, each as HTML with everything from files escaped; "" where a run says nothing about it.
#pragma once

#include <string>

#include "levin/cli/runs/report_data.h"

namespace levin {

/// A swatch and a name, as the legend shows them.
[[nodiscard]] std::string named_swatch(const std::string& name, int colour, int dash);

[[nodiscard]] std::string summary_section(const ReportData& data);
[[nodiscard]] std::string health_section(const ReportData& data);
[[nodiscard]] std::string curves_section(const ReportData& data);
[[nodiscard]] std::string results_section(const ReportData& data);

// --- The later parts of a report, each as HTML with everything from files escaped; "" where no run says anything about
// it.

[[nodiscard]] std::string options_section(const ReportData& data);
[[nodiscard]] std::string time_section(const ReportData& data);
[[nodiscard]] std::string memory_section(const ReportData& data);
[[nodiscard]] std::string checkpoints_section(const ReportData& data);
[[nodiscard]] std::string system_section(const ReportData& data);
[[nodiscard]] std::string errors_section(const ReportData& data);

}  // namespace levin
