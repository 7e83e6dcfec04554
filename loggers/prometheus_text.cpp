#include "levin/loggers/prometheus_text.h"

#include <cmath>

#include "levin/core/config_node.h"
#include "levin/core/utf8.h"

namespace levin {

namespace {

// Backslash, quote and line end are escaped; what is not UTF-8 would make the whole file invalid.
std::string escaped_label(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const char c = text[at];
    if (length == 0) {
      out += '?';
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else {
      out.append(text, at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return out;
}

std::string escaped_help(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? std::string("\\\\") : c == '\n' ? std::string("\\n") : std::string(1, c);
  return out;
}

std::string sample_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return number_text(value);
}

}  // namespace

std::string prometheus_text(const std::vector<PrometheusGauge>& gauges) {
  std::string text;
  for (const PrometheusGauge& gauge : gauges) {
    if (gauge.samples.empty()) continue;
    text += "# HELP " + gauge.name + " " + escaped_help(gauge.help) + "\n# TYPE " + gauge.name + " gauge\n";
    for (const auto& [labels, value] : gauge.samples) {
      std::string inside;
      for (const auto& [name, label] : labels)
        inside += (inside.empty() ? "" : ",") + name + "=\"" + escaped_label(label) + "\"";
      text += gauge.name + (inside.empty() ? "" : "{" + inside + "}") + " " + sample_value(value) + "\n";
    }
  }
  return text;
}

}  // namespace levin
