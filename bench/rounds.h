// Times several ways of doing the same thing in one interleaved run: every round runs each once, in turning order, so
// noise on the machine affects all of them equally. Results are medians; comparisons use ratios within the rounds.
//
//   const auto options = bench::read_options(argc, argv, 9);
//   bench::pin_to_one_core();
//   const auto measurements = bench::interleave({{"loop", [] { return loop(); }}, {"Trainer", …}}, options);
//   bench::Report report("overhead");
//   report.table("MLP", "us a step", measurements);
//   report.at_most("trainer_to_loop", bench::ratio(measurements, "Trainer", "loop"), 1.0);
//   report.write();
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

struct Options {
  int rounds = 1;
  bool quick = false;  // one round, little work: shows that the program runs; its measurements mean nothing
  std::vector<std::string> words = {};  // arguments that are not options
};

/// Reads the options of a bench program: --rounds N, --quick, words. For --help or an error, prints it and exits.
[[nodiscard]] Options read_options(int argc, char** argv, int rounds);

/// Runs `program`, the body of main; if it throws, prints the message on standard error and returns 1.
[[nodiscard]] int guarded(const std::function<int()>& program);

struct Candidate {
  std::string name;
  std::function<double()> run;  // returns the measurement of one round, e.g. microseconds per step
};

struct Measurement {
  std::string name;
  double median = 0, lowest = 0, highest = 0;
  std::vector<double> rounds = {};
};

/// Runs one unmeasured round (unless quick), then the measured rounds.
[[nodiscard]] std::vector<Measurement> interleave(const std::vector<Candidate>& candidates, const Options& options);

/// Makes a measurement, with its median and range, from rounds measured earlier.
[[nodiscard]] Measurement measurement_of(std::string name, std::vector<double> rounds);

/// The median over the rounds of value(a, b), where a and b are the measurements of `name` and `to` in the same round,
/// so that a temporary slowdown affects both. Empty if one of them did not run, for example because its peer is not
/// installed.
[[nodiscard]] std::optional<double> compare(const std::vector<Measurement>& measurements, const std::string& name,
                                            const std::string& to, const std::function<double(double, double)>& value);

/// compare() by division.
[[nodiscard]] std::optional<double> ratio(const std::vector<Measurement>& measurements, const std::string& name,
                                          const std::string& to);

/// Pins this process, and the processes that it starts, to one core, and LibTorch to one thread.
void pin_to_one_core();

/// The folder for results, created if missing: build/bench below the working directory, or $LEVIN_BENCH_DIR.
[[nodiscard]] std::filesystem::path result_folder();

/// Prints tables and measurements as they arrive, and writes all of them to <name>.json in result_folder().
class Report {
 public:
  explicit Report(std::string name);

  /// Name, median, range and the ratio to the first row.
  void table(const std::string& title, const std::string& unit, const std::vector<Measurement>& measurements);

  /// A named number.
  void number(const std::string& key, std::optional<double> value);
  /// A named number with its target; a missing number is reported and not written.
  void at_most(const std::string& key, std::optional<double> value, double limit);
  void at_least(const std::string& key, std::optional<double> value, double limit);

  /// Versions of the peers that ran.
  void peers(const nlohmann::json& versions);

  void write() const;

 private:
  std::filesystem::path save() const;
  void target(const std::string& key, std::optional<double> value, const char* kind, double limit);

  std::string name_;
  nlohmann::json out_;
};

}  // namespace bench
