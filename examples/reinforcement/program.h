// What the programs of this folder share: their command line, and the line of results that they print.
#pragma once

#include <levin/levin.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <variant>

namespace reinforcement {

// Values by name: `--steps 50000 --seed 1`.
class CommandLine {
 public:
  // `values`: every option with its default. Throws ConfigError for an option that is not one of them.
  CommandLine(int argc, char** argv, std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string word = argv[i], name = word.starts_with("--") ? word.substr(2) : word;
      if (!values_.contains(name))
        throw levin::ConfigError("command line: unknown option \"" + word + "\". " + known());
      if (i + 1 == argc) throw levin::ConfigError("command line: " + word + " needs a value. " + known());
      values_[name] = argv[i + 1];
    }
  }

  [[nodiscard]] const std::string& text(const std::string& name) const { return values_.at(name); }

  // Throws ConfigError if the value is not a whole number of at least `lowest`.
  [[nodiscard]] int64_t number(const std::string& name, int64_t lowest) const {
    const std::string& value = text(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < lowest) {
      throw levin::ConfigError("command line: --" + name + " must be a whole number of at least " +
                               std::to_string(lowest) + ", got \"" + value + "\".");
    }
    return number;
  }

  // The value of FabricOptions::record_steps.
  [[nodiscard]] std::variant<bool, std::string> record_steps() const {
    const std::string& value = text("record");
    if (value == "true" || value == "false") return value == "true";
    return value;
  }

 private:
  [[nodiscard]] std::string known() const {
    std::string all = "Known, with defaults:";
    for (const auto& [name, value] : values_) all += " --" + name + " " + (value.empty() ? "\"\"" : value);
    return all;
  }

  std::map<std::string, std::string> values_;
};

// Prints the result as a line of JSON; other output goes to standard error.
inline void print_result(int64_t episodes, double last_100, double evaluation, int64_t steps,
                         std::chrono::duration<double> elapsed) {
  std::printf(R"({"episodes": %lld, "last_100": %.1f, "evaluation": %.1f, "steps_per_second": %.0f})"
              "\n",
              static_cast<long long>(episodes), last_100, evaluation, static_cast<double>(steps) / elapsed.count());
}

// Runs the body of main: an exception becomes its message on standard error and exit status 1.
template <class Program>
int guarded(const Program& program) {
  try {
    program();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace reinforcement
