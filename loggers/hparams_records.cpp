#include "levin/loggers/hparams_records.h"

#include "levin/core/scalar_text.h"
#include "levin/core/value.h"
#include "levin/loggers/event_records.h"

namespace levin {

namespace {

// Numbers of the fields, as the plugin's api.proto and plugin_data.proto, and struct.proto have them.
enum PluginField : uint32_t { kExperiment = 2, kSessionStartInfo = 3, kSessionEndInfo = 4 };
enum ExperimentField : uint32_t { kTimeCreated = 3, kHparamInfos = 4, kMetricInfos = 5 };
enum HparamInfoField : uint32_t { kHparamName = 1, kHparamType = 4 };
enum HparamType : uint64_t { kString = 1, kBool = 2, kFloat64 = 3 };
enum SessionStartField : uint32_t { kHparams = 1, kStartTime = 5 };
enum SessionEndField : uint32_t { kStatus = 1, kEndTime = 2 };
enum SessionStatus : uint64_t { kSuccess = 1, kFailure = 2 };
enum ValueField : uint32_t { kNumberValue = 2, kStringValue = 3, kBoolValue = 4 };

std::string hparams_plugin_record(const std::string& name, uint32_t field, const WireMessage& content,
                                  const LogPoint& at) {
  WireMessage data;
  data.message(field, content);
  return plugin_record("_hparams_/" + name, "hparams", data, at);
}

HparamValue value_of(const ConfigNode& node) {
  bool truth = false;
  double number = 0;
  if (node.is_null()) return "null";
  if (node.is_scalar() && !node.quoted) {
    if (detail::parse_bool(node, truth)) return truth;
    if (detail::parse_double(node, number)) return number;
  }
  if (node.is_scalar()) return node.text;
  if (node.is_map()) return "{}";
  std::string text = "[";
  for (size_t k = 0; k < node.items.size(); ++k) {
    std::string item = node.items[k].is_scalar() ? node.items[k].text : to_yaml(node.items[k]);
    while (!item.empty() && item.back() == '\n') item.pop_back();
    text += (k > 0 ? ", " : "") + item;
  }
  return text + "]";
}

void collect_hparams(const ConfigNode& node, const std::string& name, HparamList& list) {
  if (!node.is_map() || node.entries.empty()) return list.emplace_back(name, value_of(node)), void();
  for (const auto& entry : node.entries)
    collect_hparams(entry.value, name.empty() ? entry.key : name + "/" + entry.key, list);
}

}  // namespace

HparamList flat_hparams(const ConfigNode& hparams) {
  HparamList list;
  if (hparams.is_map() && !hparams.entries.empty()) collect_hparams(hparams, "", list);
  return list;
}

std::string session_start_info_record(const HparamList& hparams, const LogPoint& at) {
  WireMessage info;
  for (const auto& [name, held] : hparams) {
    WireMessage value;
    if (const auto* truth = std::get_if<bool>(&held)) value.number(kBoolValue, *truth ? 1 : 0);
    if (const auto* number = std::get_if<double>(&held)) value.real(kNumberValue, *number);
    if (const auto* text = std::get_if<std::string>(&held)) value.text(kStringValue, *text);
    WireMessage entry;
    info.message(kHparams, entry.text(1, name).message(2, value));
  }
  return hparams_plugin_record("session_start_info", kSessionStartInfo, info.real(kStartTime, at.time), at);
}

std::string experiment_record(const HparamList& hparams, const std::vector<std::string>& metric_tags,
                              const LogPoint& at) {
  WireMessage experiment;
  experiment.real(kTimeCreated, at.time);
  for (const auto& [name, held] : hparams) {
    const uint64_t type = std::holds_alternative<bool>(held) ? kBool : held.index() == 1 ? kFloat64 : kString;
    WireMessage info;
    experiment.message(kHparamInfos, info.text(kHparamName, name).number(kHparamType, type));
  }
  for (const std::string& tag : metric_tags) {
    WireMessage name;
    name.text(2, tag);
    WireMessage info;
    experiment.message(kMetricInfos, info.message(1, name));
  }
  return hparams_plugin_record("experiment", kExperiment, experiment, at);
}

std::string session_end_info_record(bool success, const LogPoint& at) {
  WireMessage info;
  info.number(kStatus, success ? kSuccess : kFailure).real(kEndTime, at.time);
  return hparams_plugin_record("session_end_info", kSessionEndInfo, info, at);
}

}  // namespace levin
