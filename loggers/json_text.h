// JSON written straight into a line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "levin/core/config_node.h"
#include "levin/loggers/log_values.h"

namespace levin {

/// The shortest number that reads back to the same; nan and infinities, which JSON does not have, as the texts "NaN",
/// "Infinity" and "-Infinity", which Python's float() reads.
void append_json(std::string& line, double number);
/// In quotes; bytes that are not UTF-8 become U+FFFD.
void append_json(std::string& line, std::string_view text);
void append_json(std::string& line, const MetricList& numbers);
void append_json(std::string& line, std::span<const double> numbers);
void append_json(std::string& line, const LogTable::Cell& cell);
/// Scalars that YAML would read as a number or a bool are written as one.
void append_json(std::string& line, const ConfigNode& node);

}  // namespace levin
