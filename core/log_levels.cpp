#include "levin/core/log_levels.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <memory>
#include <mutex>

#include "levin/core/error.h"

namespace levin::log {

namespace {

constexpr std::array kLevelWords{std::pair{"trace", Level::trace}, std::pair{"debug", Level::debug},
                                 std::pair{"info", Level::info},   std::pair{"warning", Level::warn},
                                 std::pair{"warn", Level::warn},   std::pair{"error", Level::error},
                                 std::pair{"off", Level::off}};

// Built-in slots, and those that programs have added. Never destroyed: other statics may log when they are.
struct Slots {
  struct Own {
    explicit Own(std::string given) : name(std::move(given)), slot{name.c_str()} {}
    std::string name;
    detail::Slot slot;
  };

  std::mutex mutex = {};
  std::vector<detail::Slot*> all = {&detail::trainer_slot,    &detail::data_slot,    &detail::strategy_slot,
                                    &detail::checkpoint_slot, &detail::logger_slot,  &detail::launcher_slot,
                                    &detail::hooks_slot,      &detail::console_slot, &detail::user_slot};
  std::deque<std::unique_ptr<Own>> own = {};
};

Slots& slots() {
  static Slots& made = *new Slots;
  return made;
}

std::optional<Level> level_of(const std::string& word) {
  for (const auto& [known, level] : kLevelWords) {
    if (word == known) return level;
  }
  return std::nullopt;
}

std::vector<std::string> level_words() {
  return {"trace", "debug", "info", "warn", "error", "off"};
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Level read_level(const std::string& word, const std::string& source) {
  if (const auto level = level_of(word)) return *level;
  throw ConfigError(source + ": unknown level \"" + cut_text(word) + "\"." + did_you_mean(word, level_words()) +
                    " Known: " + join(level_words()) + ". Write a level, or COMPONENT=LEVEL, separated by commas.");
}

void read_item(const std::string& item, const std::string& source, Levels& levels) {
  const size_t equals = item.find('=');
  if (equals == std::string::npos) {
    const auto names = component_names();
    if (std::find(names.begin(), names.end(), item) != names.end()) {
      throw ConfigError(source + ": no level follows the component \"" + item + "\". Write " + item + "=debug.");
    }
    levels.all = read_level(item, source);
    return;
  }
  const std::string name = trimmed(item.substr(0, equals));
  const auto names = component_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw ConfigError(source + ": unknown component \"" + cut_text(name) + "\"." + did_you_mean(name, names) +
                      " Known: " + join(names) + ".");
  }
  levels.components.emplace_back(name, read_level(trimmed(item.substr(equals + 1)), source));
}

}  // namespace

const char* level_name(Level level) {
  return kLevelWords[static_cast<size_t>(level) + (level > Level::warn ? 1 : 0)].first;
}

namespace detail {

Slot& slot_of(const std::string& name) {
  std::string clean = name;
  std::replace_if(
      clean.begin(), clean.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '.' && c != '-'; }, '_');
  Slots& known = slots();
  const std::lock_guard lock(known.mutex);
  for (Slot* slot : known.all) {
    if (clean == slot->name) return *slot;
  }
  known.own.push_back(std::make_unique<Slots::Own>(clean));
  known.all.push_back(&known.own.back()->slot);
  return known.own.back()->slot;
}

}  // namespace detail

std::vector<std::string> component_names() {
  Slots& known = slots();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> names;
  for (const detail::Slot* slot : known.all) names.emplace_back(slot->name);
  std::sort(names.begin(), names.end());
  return names;
}

Levels parse_levels(const std::string& text, const std::string& source) {
  Levels levels;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = trimmed(text.substr(begin, end - begin));
    if (!item.empty()) read_item(item, source, levels);
    begin = end + 1;
  }
  return levels;
}

void apply_levels(const std::vector<Levels>& all) {
  Slots& known = slots();
  const std::lock_guard lock(known.mutex);
  for (detail::Slot* slot : known.all) {
    Level level = Level::info;
    for (const Levels& levels : all) {
      if (levels.all) level = *levels.all;
      for (const auto& [name, own] : levels.components) {
        if (name == slot->name) level = own;
      }
    }
    slot->level.store(level, std::memory_order_relaxed);
    slot->echoes.store(level < Level::info, std::memory_order_relaxed);
  }
}

}  // namespace levin::log
