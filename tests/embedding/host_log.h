// The log of a program that has its own spdlog: header-only, with other names of levels than Levin's.
#pragma once

#include <string>

namespace host_log {

/// Makes the default logger, with a sink that keeps lines and the level error, and another logger, "other".
void start();
/// Writes an error to both loggers. Returns what the sink has kept and how many loggers there are, as one line.
std::string state();

}  // namespace host_log
