#include "levin/cli/config/lightning_class.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "levin/cli/config/commented_yaml.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin {

namespace {

// Options that Levin does not have, with Lightning's and PyTorch's defaults as printed.
constexpr std::array kUnset{
    std::pair{"enable_autolog_hparams", "true"},  // Trainer
    std::pair{"foreach", "false"},                // torch.optim
    std::pair{"capturable", "false"},
    std::pair{"differentiable", "false"},
    std::pair{"fused", "false"},
    std::pair{"decoupled_weight_decay", "false"},
    std::pair{"last_epoch", "-1"},  // torch.optim.lr_scheduler
    std::pair{"verbose", "deprecated"},
    std::pair{"verbose", "false"},
    std::pair{"refresh_rate", "1"},  // progress bars
    std::pair{"process_position", "0"},
    std::pair{"leave", "false"},
    std::pair{"prefix", ""},                  // CSVLogger
    std::pair{"checkpoint_path_prefix", ""},  // MLFlowLogger
    std::pair{"synchronous", "false"},
    std::pair{"log_graph", "false"},  // TensorBoardLogger
    std::pair{"max_queue", "10"},
    std::pair{"comment", ""},
    std::pair{"start_method", "popen"},
    std::pair{"log_rank_zero_only", "false"},
};

constexpr std::array kUnits{std::pair{"weeks", 604800.0},   std::pair{"days", 86400.0}, std::pair{"hours", 3600.0},
                            std::pair{"minutes", 60.0},     std::pair{"seconds", 1.0},  std::pair{"milliseconds", 1e-3},
                            std::pair{"microseconds", 1e-6}};

std::optional<double> seconds_of(const ConfigNode& parts) {
  double total = 0;
  for (const auto& entry : parts.entries) {
    const auto* unit =
        std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& known) { return entry.key == known.first; });
    double amount = 0;
    if (unit == kUnits.end() || !detail::parse_double(entry.value, amount) || amount < 0) return std::nullopt;
    total += amount * unit->second;
  }
  return total;
}

// The lines of `all` that are not in `before`, without their leading position and path.
std::string new_problem(const Problems& all, const Problems& before, const Mark& mark, const std::string& path) {
  for (const auto& line : all.lines()) {
    if (std::find(before.lines().begin(), before.lines().end(), line) != before.lines().end()) continue;
    const std::string place = mark.str().empty() ? "" : mark.str() + ": ";
    for (const auto& start : {place + path + ": ", place + path + ".", path + "."}) {
      if (line.starts_with(start)) return line.substr(start.size());
    }
    return line;
  }
  return "";
}

// Lightning's own modules, and PyTorch's: a class of the same name elsewhere is a different one.
bool is_of_a_library(const std::string& class_path) {
  const std::string root = class_path.substr(0, class_path.find('.'));
  return class_path.find('.') == std::string::npos || root == "lightning" || root == "pytorch_lightning" ||
         root == "lightning_fabric" || root == "torch";
}

class ClassTranslation {
 public:
  ClassTranslation(const ClassEntry& entry, const std::string& path, TranslationNotes& notes)
      : entry_(entry), path_(join_path(path, "init_args")), notes_(notes), fields_(entry.describe()) {
    entry_.resolve(ConfigNode::map(), path_, without_any_);
  }

  void add(const ConfigEntry& written) {
    if (written.value.is_null()) return;  // Lightning's default, and Levin has its own
    const auto field =
        std::find_if(fields_.begin(), fields_.end(), [&](const auto& each) { return each.name == written.key; });
    if (field == fields_.end()) {
      if (asks_for_nothing(written.key, written.value)) return;
      std::vector<std::string> names;
      for (const auto& each : fields_) names.push_back(each.name);
      return leave_out(written, "Levin's " + entry_.name + " has no option \"" + cut_text(written.key) + "\"." +
                                    did_you_mean(written.key, names) + " Its options: " + sorted_names(names) + ".");
    }
    ConfigEntry taken = written;
    if (field->type.starts_with("duration")) taken.value = from_timedelta(written.value).value_or(written.value);
    // Lightning's loggers also accept the number of the folder.
    const bool numbered = entry_.name == "CSVLogger" || entry_.name == "TensorBoardLogger";
    if (numbered && written.key == "version" && !written.value.quoted &&
        written.value.text.find_first_not_of("0123456789") == std::string::npos && !written.value.text.empty())
      taken.value.text = "version_" + written.value.text;
    if (has_interpolation(taken.value)) return leave_out(written, kNotExpanded);
    if (const std::string why = problem_of(taken); why.empty()) {
      args_.entries.push_back(std::move(taken));
    } else {
      leave_out(written, why);
    }
  }

  ConfigNode take_args() { return std::move(args_); }

  static constexpr const char* kNotExpanded = "Levin does not expand ${…}: write the value itself.";

 private:
  void leave_out(const ConfigEntry& written, const std::string& why) {
    notes_.leave_out(args_, written, join_path(path_, written.key), why);
  }

  std::string problem_of(const ConfigEntry& option) const {
    ConfigNode alone = ConfigNode::map();
    alone.entries.push_back(option);
    Problems problems;
    entry_.resolve(alone, path_, problems);
    return new_problem(problems, without_any_, option.value.mark, join_path(path_, option.key));
  }

  const ClassEntry& entry_;
  std::string path_;
  TranslationNotes& notes_;
  std::vector<FieldInfo> fields_;
  Problems without_any_;  // what is wrong when no option is set
  ConfigNode args_ = ConfigNode::map();
};

// LightningCLI writes **kwargs of a class next to init_args: they are options too.
ConfigNode without_dict_kwargs(ConfigNode written) {
  const ConfigNode* more = written.find("dict_kwargs");
  if (more == nullptr) return written;
  const ConfigNode* args = written.find("init_args");
  ConfigNode all = args != nullptr ? *args : ConfigNode::map();
  for (const auto& option : more->entries) all.set(option.key, option.value, option.key_mark);
  written.set("init_args", std::move(all));
  written.erase("dict_kwargs");
  return written;
}

// The options of a resolved spec that an empty spec does not have: those implied by an alias.
ConfigNode options_of_alias(const ClassSpec& resolved, const ClassEntry& entry) {
  Problems ignored;
  const ConfigNode plain = entry.resolve(ConfigNode::map(), "", ignored);
  ConfigNode options = ConfigNode::map();
  for (const auto& option : resolved.init_args.entries) {
    const ConfigNode* usual = plain.find(option.key);
    if (usual == nullptr || !usual->same_as(option.value)) options.entries.push_back(option);
  }
  return options;
}

}  // namespace

bool asks_for_nothing(const std::string& option, const ConfigNode& value) {
  if (value.is_null()) return true;
  if (!value.is_scalar()) return !value.is_list() ? value.entries.empty() : value.items.empty();
  return std::any_of(kUnset.begin(), kUnset.end(),
                     [&](const auto& unset) { return option == unset.first && value.text == unset.second; });
}

bool has_interpolation(const ConfigNode& value) {
  return value.text.find("${") != std::string::npos ||
         std::any_of(value.items.begin(), value.items.end(), has_interpolation) ||
         std::any_of(value.entries.begin(), value.entries.end(),
                     [](const auto& entry) { return has_interpolation(entry.value); });
}

std::optional<ConfigNode> from_timedelta(const ConfigNode& value) {
  std::optional<double> seconds;
  if (value.is_map()) seconds = seconds_of(value);
  if (value.is_scalar()) {
    int days = 0;
    int hours = 0;
    int minutes = 0;
    int rest = 0;
    int end = 0;
    const char* text = value.text.c_str();
    const size_t comma = value.text.find(", ");
    if (comma != std::string::npos) {
      if (std::sscanf(text, "%6d day", &days) != 1) return std::nullopt;
      text += comma + 2;
    }
    if (std::sscanf(text, "%6d:%2d:%2d%n", &hours, &minutes, &rest, &end) != 3 || text[end] != '\0')
      return std::nullopt;
    if (days < 0 || hours < 0 || minutes < 0 || rest < 0) return std::nullopt;
    seconds = days * 86400.0 + hours * 3600.0 + minutes * 60.0 + rest;
  }
  if (!seconds) return std::nullopt;
  ConfigNode span = ValueType<Seconds>::write(Seconds(*seconds));
  span.mark = value.mark;
  return span;
}

void TranslationNotes::leave_out(ConfigNode& container, const ConfigEntry& entry, const std::string& path,
                                 const std::string& why) {
  left_out.add(entry.key_mark.str().empty() ? entry.value.mark : entry.key_mark, path, why);
  ConfigNode value = entry.value;
  if (!entry.key.empty()) {
    value = ConfigNode::map();
    value.entries.push_back(entry);
  } else {
    value = ConfigNode::list({value});
  }
  add_comment(container, "left out: " + left_out.lines().back() + "\n" + to_yaml(value));
}

std::optional<ConfigNode> translate_class(const ConfigNode& as_written, const std::string& path,
                                          const KnownClasses& known, TranslationNotes& notes, std::string& problem) {
  const ConfigNode written = without_dict_kwargs(as_written);
  ClassSpec spec;
  Problems problems;
  const auto fail = [&](const ConfigNode& place) {
    problem = new_problem(problems, {}, place.mark, path);
    return std::nullopt;
  };
  if (!ValueType<ClassSpec>::read(written, spec, path, problems)) return fail(written);
  const ConfigNode* name = written.find("class_path");
  Problems of_options;  // of an empty spec; the options are checked one by one below
  const ClassSpec plain = known.resolve({spec.class_path, {}, spec.mark}, path, of_options);
  const ClassEntry* entry = known.find(plain.class_path);
  if (entry == nullptr) {
    problems.add(of_options);
    fail(name != nullptr ? *name : written);
    problem += " " + known.instead;
    return std::nullopt;
  }
  if (!is_of_a_library(spec.class_path)) {
    notes.notes.push_back((spec.mark.str().empty() ? "" : spec.mark.str() + ": ") + path + ": " +
                          cut_text(spec.class_path) + " is taken as the class " + entry->name +
                          " that is registered here: " + entry->doc + ".");
  }
  ClassTranslation translation(*entry, path, notes);
  ConfigNode args = options_of_alias(plain, *entry);
  for (const auto& option : spec.init_args.entries) translation.add(option);
  ConfigNode taken = translation.take_args();
  for (const auto& option : taken.entries)
    args.erase(option.key);  // given options take precedence over the options of an alias
  for (auto& option : taken.entries) args.entries.push_back(std::move(option));
  ConfigNode options = ConfigNode::map();
  for (const auto& field : entry->describe()) {
    if (const ConfigNode* value = args.find(field.name)) options.set(field.name, *value);
  }
  entry->resolve(options, join_path(path, "init_args"), problems);
  if (!problems.empty()) return fail(written);
  ConfigNode result = ConfigNode::map();
  result.set("class_path", ConfigNode::scalar(entry->name));
  if (!args.entries.empty()) result.set("init_args", std::move(args));
  return written.is_scalar() && result.entries.size() == 1 ? ConfigNode::scalar(entry->name) : result;
}

}  // namespace levin
