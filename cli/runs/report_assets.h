// The style sheet and the script of a report: report/page.css and report/page.js, compiled in.
#pragma once

#include <string_view>

namespace levin {

extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace levin
