#include "levin/cli/config/old_options.h"

#include <array>
#include <utility>

#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr std::array kOldNames{"gpus", "nb_gpu_nodes", "distributed_backend", "use_amp", "amp_level"};

/// The present form of an old option: options of the trainer, or a remark if it has none.
struct CurrentOptions {
  std::vector<std::pair<std::string, ConfigNode>> options = {};
  std::string remark = "";
};

bool is(const ConfigNode* node, const std::string& text) {
  return node != nullptr && node->is_scalar() && node->text == text;
}

std::string shown(const ConfigNode& value) {
  if (!value.is_list()) return value.shown();
  std::string text;
  for (const auto& item : value.items) text += (text.empty() ? "" : ", ") + item.shown();
  return "[" + text + "]";
}

// "0, 1" -> [0, 1]; anything else unchanged.
ConfigNode device_list(const ConfigNode& gpus) {
  if (!gpus.is_scalar() || gpus.text.find(',') == std::string::npos) return gpus;
  ConfigNode list = ConfigNode::list();
  std::string item;
  for (const char letter : gpus.text + ",") {
    if (letter == ',') {
      if (!item.empty()) list.items.push_back(ConfigNode::scalar(std::exchange(item, "")));
    } else if (letter != ' ') {
      item += letter;
    }
  }
  return list;
}

CurrentOptions current_options_of(const std::string& name, const ConfigNode& value, const ConfigNode& trainer) {
  if (name == "nb_gpu_nodes") return {{{"num_nodes", value}}};
  if (name == "distributed_backend") {
    if (is(&value, "ddp_cpu"))
      return {{{"accelerator", ConfigNode::scalar("cpu")}, {"strategy", ConfigNode::scalar("ddp")}}};
    return {{{"strategy", value}}};
  }
  if (name == "gpus") {
    if (is(&value, "0") || (value.is_list() && value.items.empty()))
      return {{{"accelerator", ConfigNode::scalar("cpu")}}};
    return {{{"accelerator", ConfigNode::scalar("gpu")}, {"devices", device_list(value)}}};
  }
  // apex's levels: O0 is float32, O1 and O2 mix float16 with float32 (with float32 weights to update), O3 is float16.
  const ConfigNode* level = trainer.find("amp_level");
  const bool on = is(trainer.find("use_amp"), "true");
  const std::string precision = !on || is(level, "O0") ? "32-true" : is(level, "O3") ? "16-true" : "16-mixed";
  if (name == "amp_level" && !on) return {{}, "says nothing without use_amp: true"};
  return {{{"precision", ConfigNode::scalar(precision)}}};
}

bool check_values(const std::string& name, const ConfigNode& value, Problems& problems) {
  if (name == "use_amp" && !is(&value, "true") && !is(&value, "false")) {
    problems.add(value.mark, "trainer.use_amp", "expected true or false, got " + value.shown() + ".");
    return false;
  }
  if (name == "amp_level" && !is(&value, "O0") && !is(&value, "O1") && !is(&value, "O2") && !is(&value, "O3")) {
    problems.add(value.mark, "trainer.amp_level", "expected O0, O1, O2 or O3, got " + value.shown() + ".");
    return false;
  }
  return true;
}

class Translation {
 public:
  Translation(ConfigNode& trainer, Problems& problems) : trainer_(trainer), old_(trainer), problems_(problems) {}

  std::vector<std::string> notices = {};

  void translate(const ConfigEntry& old) {
    trainer_.erase(old.key);
    if (old.value.is_null() || !check_values(old.key, old.value, problems_)) return;
    const CurrentOptions current = current_options_of(old.key, old.value, old_);
    std::string text = current.remark;
    for (const auto& [name, value] : current.options) {
      text += (text.empty() ? "today: " : ", ") + name + ": " + shown(value);
      put(old, name, value);
    }
    const std::string place = old.key_mark.str();
    const bool is_override = place.starts_with("--trainer." + old.key + "=");  // it shows the option and its value
    const std::string what = "trainer." + old.key + ": " + shown(old.value);
    notices.push_back((is_override ? place + ": " : (place.empty() ? "" : place + ": ") + what + " ") +
                      (!current.remark.empty() ? ""
                       : is_override           ? "an old spelling; "
                                               : "is an old spelling; ") +
                      text + ".");
  }

 private:
  void put(const ConfigEntry& old, const std::string& name, ConfigNode value) {
    value.mark = old.value.mark;
    const ConfigNode* there = old_.find(name);
    if (there == nullptr || there->is_null() || is(there, "auto")) {
      trainer_.set(name, std::move(value), old.key_mark);
      return;
    }
    if (shown(*there) == shown(value) || (name == "accelerator" && is(there, "cuda") && is(&value, "gpu"))) return;
    problems_.add(old.value.mark, "trainer." + old.key,
                  shown(old.value) + " means " + name + ": " + shown(value) + ", but trainer." + name + " is " +
                      shown(*there) + (there->mark.str().empty() ? "" : " (" + there->mark.str() + ")") +
                      ". Keep one of the two.");
  }

  ConfigNode& trainer_;
  const ConfigNode old_;  // the trainer's part as written in the file
  Problems& problems_;
};

}  // namespace

std::vector<std::string> old_option_names() {
  return {kOldNames.begin(), kOldNames.end()};
}

std::vector<std::string> translate_old_options(ConfigNode& trainer, Problems& problems) {
  Translation translation(trainer, problems);
  std::vector<ConfigEntry> found;
  for (const auto& entry : trainer.entries) {
    for (const char* name : kOldNames) {
      if (entry.key == name) found.push_back(entry);
    }
  }
  for (const auto& entry : found) translation.translate(entry);
  return std::move(translation.notices);
}

}  // namespace levin
