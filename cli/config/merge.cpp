#include "levin/cli/config/merge.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <unordered_map>

#include "levin/cli/config/run_config.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

bool is_spec(const ConfigNode& node) {
  return node.find("class_path") != nullptr;
}

// Also a spec whose class follows later: --optimizer.lr=0.1 --optimizer=AdamW.
bool is_part_of_spec(const ConfigNode& node) {
  return is_spec(node) || node.find("init_args") != nullptr;
}

bool same_class(const ConfigNode& a, const ConfigNode& b) {
  return ClassSpec(a.text, {}).short_name() == ClassSpec(b.text, {}).short_name();
}

// "EarlyStopping" is short for {class_path: EarlyStopping}.
ConfigNode spec_of(const ConfigNode& name) {
  ConfigNode spec = ConfigNode::map();
  spec.mark = name.mark;
  spec.set("class_path", name, name.mark);
  return spec;
}

void set_class(ConfigNode& spec, const ConfigNode& name, const Mark& key_mark) {
  const ConfigNode* old = spec.find("class_path");
  // Lightning also tries to keep arguments that both classes have; here none are kept, because an argument of another
  // class with the same name may mean something else.
  if (old != nullptr && !same_class(*old, name)) spec.erase("init_args");
  spec.set("class_path", name, key_mark);
}

void merge_maps(ConfigNode& lower, const ConfigNode& upper) {
  if (const ConfigNode* name = upper.find("class_path")) set_class(lower, *name, name->mark);
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < lower.entries.size(); ++i) places.emplace(lower.entries[i].key, i);
  std::vector<const ConfigEntry*> added;
  for (const auto& entry : upper.entries) {
    const auto place = places.find(entry.key);
    if (place == places.end()) {
      added.push_back(&entry);
    } else {
      ConfigEntry& mine = lower.entries[place->second];
      mine.key_mark = entry.key_mark;
      merge_config(mine.value, entry.value);
    }
  }
  for (const ConfigEntry* entry : added) lower.entries.push_back(*entry);
}

}  // namespace

void merge_config(ConfigNode& lower, const ConfigNode& upper) {
  if (lower.is_map() && upper.is_map()) {
    merge_maps(lower, upper);
    lower.mark = upper.mark;
  } else if (lower.is_map() && is_part_of_spec(lower) && upper.is_scalar()) {
    set_class(lower, upper, upper.mark);
  } else if (lower.is_scalar() && upper.is_map() && is_part_of_spec(upper)) {
    lower = spec_of(lower);
    merge_maps(lower, upper);
  } else {
    lower = upper;
  }
}

std::string Override::str() const {
  return "--" + path + (append ? "+=" : "=") + cut_text(value);
}

namespace {

struct Step {
  std::string key = "";
  std::optional<size_t> index = std::nullopt;
  bool bracket = false;  // [0] can only be an index, .0 may be a key
};

std::optional<size_t> index_of(std::string_view text) {
  size_t index = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return index;
}

// "callbacks[0].init_args" or "callbacks.0.init_args" as steps; nothing if a part is empty or a bracket is not closed.
std::vector<Step> steps_of(const std::string& path) {
  std::vector<Step> steps;
  size_t at = 0;
  while (at <= path.size()) {
    const size_t end = std::min(path.find_first_of(".[", at), path.size());
    const bool after_bracket = at > 0 && path[at - 1] == ']';
    if (end > at) {
      if (after_bracket) return {};
      const std::string key = path.substr(at, end - at);
      steps.push_back({key, index_of(key), false});
    } else if (!after_bracket || end + 1 == path.size()) {
      return {};
    }
    if (end == path.size()) break;
    at = end + 1;
    if (path[end] == '[') {
      const size_t close = path.find(']', at);
      if (close == std::string::npos) return {};
      const std::string inside = path.substr(at, close - at);
      if (!index_of(inside)) return {};
      steps.push_back({inside, index_of(inside), true});
      at = close + 1;
      if (at == path.size()) break;
    }
  }
  return steps.size() <= kMaxYamlNesting ? steps : std::vector<Step>{};
}

bool looks_like_class(const ConfigNode& node) {
  if (!node.is_scalar() || node.text.empty() || !reads_as_string(node.text)) return false;
  const auto is_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == ':'; };
  return std::isdigit(static_cast<unsigned char>(node.text[0])) == 0 &&
         std::all_of(node.text.begin(), node.text.end(), is_name);
}

// Follows an override's path in the tree and sets the value at its end.
class OverrideWalk {
 public:
  OverrideWalk(const Override& change, Problems& problems)
      : change_(change), mark_{change.str(), 0, 0}, steps_(steps_of(change.path)), problems_(problems) {}

  void apply(ConfigNode& config) {
    if (steps_.empty()) {
      fail("not a path. Write names separated by dots, list items as callbacks.0 or callbacks[0].");
      return;
    }
    if (!check_yaml_characters(change_.path, mark_, problems_)) return;
    const size_t problems_before = problems_.size();
    const ConfigNode value = value_of_change();
    if (problems_.size() != problems_before) return;
    ConfigNode changed = config;  // an invalid path must not change anything
    if (ConfigNode* target = walk(changed)) {
      if (change_.append ? append(*target, value) : assign(*target, value)) config = std::move(changed);
    }
  }

 private:
  // Nothing after "=" is an empty string, not YAML's null: a shell passes a variable that is not set as that.
  ConfigNode value_of_change() {
    if (change_.value.find_first_not_of(" \t") != std::string::npos) {
      return read_yaml_value(change_.value, mark_, problems_);
    }
    ConfigNode empty = ConfigNode::scalar("", true);
    empty.mark = mark_;
    return empty;
  }

  bool fail(const std::string& what) {
    problems_.add(mark_, walked_, what);
    return false;
  }

  bool assign(ConfigNode& target, const ConfigNode& value) {
    const bool names_class = steps_.back().key == "class_path" && parent_ != nullptr && value.is_scalar();
    if (names_class) {
      set_class(*parent_, value, mark_);
    } else {
      merge_config(target, value);
    }
    return true;
  }

  bool append(ConfigNode& target, const ConfigNode& value) {
    if (target.is_null()) target = ConfigNode::list();
    if (!target.is_list())
      return fail("cannot append to " + target.shown() + ", which is not a list. Use \"=\" to replace it.");
    if (value.is_list()) {
      target.items.insert(target.items.end(), value.items.begin(), value.items.end());
    } else {
      target.items.push_back(value);
    }
    target.mark = mark_;
    return true;
  }

  ConfigNode* walk(ConfigNode& config) {
    ConfigNode* node = &config;
    for (const Step& step : steps_) {
      if (node->is_list() || step.bracket) {
        node = item(*node, step);
      } else {
        node = child(*node, step.key);
      }
      if (node == nullptr) return nullptr;
    }
    return node;
  }

  ConfigNode* item(ConfigNode& list, const Step& step) {
    const size_t count = list.items.size();
    if (!step.index && was_appended(list)) {
      ConfigNode& last = list.items.back();
      const Mark appended = last.mark;  // for the next option of it
      walked_ = detail::index_path(walked_, count - 1);
      ConfigNode* found = child(last, step.key);
      last.mark = appended;
      return found;
    }
    if (!list.is_list() && !list.is_null()) {
      fail("is " + list.shown() + ", not a list, so it has no item " + step.key + ".");
    } else if (!step.index) {
      fail("is a list of " + count_of(count, "item") + ": write the number of one, as in " + walked_ + ".0, not \"" +
           step.key + "\".");
    } else if (*step.index >= count) {
      fail("item " + step.key + " does not exist: the list has " + count_of(count, "item") +
           (count == 0 ? "" : ", counted from 0") + ". Append with --" + walked_ + "+=VALUE.");
    } else {
      walked_ = detail::index_path(walked_, *step.index);
      parent_ = nullptr;
      return &list.items[*step.index];
    }
    return nullptr;
  }

  // As LightningCLI reads it: after --trainer.callbacks+=Timer, --trainer.callbacks.duration is the Timer's.
  [[nodiscard]] bool was_appended(const ConfigNode& list) const {
    return list.is_list() && !list.items.empty() && list.items.back().mark.source.starts_with("--" + walked_ + "+=");
  }

  ConfigNode* child(ConfigNode& node, const std::string& key) {
    ConfigNode* map = &node;
    if (node.is_scalar() && may_name_class() && looks_like_class(node)) {
      node = spec_of(node);
      node.mark = mark_;
    }
    if (node.is_scalar()) {
      fail("is " + node.shown() + ", so nothing can be set below it (\"" + key + "\"). Set --" + walked_ + " itself.");
      return nullptr;
    }
    const bool spec = is_spec(node) || is_top_level_spec();
    if (spec && key != "class_path" && key != "init_args" && !is_beside_class(key)) {
      map = &below(node, "init_args");  // --model.hidden is short for --model.init_args.hidden
      if (map->is_scalar() || map->is_list()) {
        fail("is " + map->shown() + ", not a map.");
        return nullptr;
      }
    }
    parent_ = map;
    return &below(*map, key);
  }

  ConfigNode& below(ConfigNode& map, const std::string& key) {
    walked_ = join_path(walked_, key);
    if (map.is_null()) {
      map = ConfigNode::map();
      map.mark = mark_;
    }
    if (ConfigNode* there = map.find(key)) return *there;
    ConfigNode empty;
    empty.mark = mark_;
    return map.set(key, empty, mark_);
  }

  // Whether a plain name at `walked_` means a class: for model and the like, or in the trainer's part.
  [[nodiscard]] bool may_name_class() const {
    return is_top_level_spec() || (walked_.starts_with("trainer.") && walked_.find("init_args") == std::string::npos);
  }
  [[nodiscard]] bool is_top_level_spec() const {
    static const std::vector<std::string> specs{"model", "data", "optimizer", "lr_scheduler"};
    return std::find(specs.begin(), specs.end(), walked_) != specs.end();
  }
  [[nodiscard]] bool is_beside_class(const std::string& key) const {
    std::vector<std::string> names;
    if (walked_ == "lr_scheduler") names = field_names<LrSchedulerSpec>();
    if (walked_ == "optimizer") names = field_names<OptimizerSpec>();
    return std::find(names.begin(), names.end(), key) != names.end();
  }

  const Override& change_;
  Mark mark_;
  std::vector<Step> steps_;
  Problems& problems_;
  std::string walked_ = "";
  ConfigNode* parent_ = nullptr;  // the map that holds the node reached
};

}  // namespace

void apply_override(ConfigNode& config, const Override& change, Problems& problems) {
  OverrideWalk(change, problems).apply(config);
}

ConfigNode assemble_config(const std::vector<ConfigSource>& sources, Problems& problems) {
  ConfigNode config = ConfigNode::map();
  for (const auto& source : sources) {
    if (const auto* file = std::get_if<ConfigFile>(&source))
      merge_config(config, read_yaml_input(file->path, problems));
    if (const auto* text = std::get_if<ConfigText>(&source))
      merge_config(config, read_yaml_text(text->text, text->name, problems));
    if (const auto* change = std::get_if<Override>(&source)) apply_override(config, *change, problems);
  }
  return config;
}

}  // namespace levin
