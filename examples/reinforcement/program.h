// What the programs of this folder share: their command line, and what they print.
#pragma once

#include <levin/levin.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <variant>

namespace reinforcement {

// Options by name, as in `--steps 50000 --seed 1`.
class CommandLine {
 public:
  // `defaults`: all options. Throws ConfigError for an option that is not one of them.
  CommandLine(int argc, char** argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string word = argv[i];
      if (word.starts_with("--") && values_.contains(word.substr(2)) && i + 1 < argc) {
        values_[word.substr(2)] = argv[i + 1];
        continue;
      }
      std::string known;
      for (const auto& [name, value] : values_) known += " --" + name + " " + (value.empty() ? "\"\"" : value);
      throw levin::ConfigError("command line: \"" + word + "\" is not an option with a value. Defaults:" + known + ".");
    }
  }

  [[nodiscard]] const std::string& text(const std::string& name) const { return values_.at(name); }

  // Throws ConfigError if the value is not a positive whole number.
  [[nodiscard]] int64_t number(const std::string& name) const {
    const std::string& value = text(name);
    int64_t number = 0;
    const char* const end = value.data() + value.size();
    if (std::from_chars(value.data(), end, number).ptr == end && number > 0) return number;
    throw levin::ConfigError("command line: --" + name + " must be a positive whole number, got \"" + value + "\".");
  }

  // The value of FabricOptions::record_steps.
  [[nodiscard]] std::variant<bool, std::string> record_steps() const {
    const std::string& value = text("record");
    if (value == "true" || value == "false") return value == "true";
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
};

// The time of a training, and its result as a line of JSON.
class Stopwatch {
 public:
  void stop() { seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  // `last_100`: the mean return of the last 100 episodes in training; `evaluation`: of 20 episodes without exploration.
  void print(int64_t steps, double last_100, double evaluation) const {
    std::printf("{\"last_100\": %.1f, \"evaluation\": %.1f, \"steps_per_second\": %.0f}\n", last_100, evaluation,
                static_cast<double>(steps) / seconds_);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_ = 0;
};

}  // namespace reinforcement
