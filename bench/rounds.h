// Times several ways of doing the same thing in one interleaved run: every round runs each once, in turning order, so
// that a noisy machine disturbs all alike. Figures are medians; what is compared are ratios within the rounds.
//
//   const auto options = bench::read_options(argc, argv, 9);
//   bench::pin_to_one_core();
//   const auto figures = bench::interleave({{"loop", [] { return loop(); }}, {"Trainer", …}}, options);
//   bench::Report report("overhead");
//   report.table("MLP", "us a step", figures);
//   report.at_most("trainer_to_loop", bench::ratio(figures, "Trainer", "loop"), 1.0);
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
  bool quick = false;                   // one round, little work: shows that the program runs, its figures mean nothing
  std::vector<std::string> words = {};  // arguments that are not options
};

/// Options of a bench program: --rounds N, --quick, words. For --help or a mistake, prints it and ends the process.
[[nodiscard]] Options read_options(int argc, char** argv, int rounds);

/// Runs `program`, the body of main; if it throws, prints the message on standard error and returns 1.
[[nodiscard]] int guarded(const std::function<int()>& program);

struct Contender {
  std::string name;
  std::function<double()> run;  // returns the figure of one round, e.g. microseconds per step
};

struct Figure {
  std::string name;
  double median = 0, lowest = 0, highest = 0;
  std::vector<double> rounds = {};
};

/// One unmeasured round (unless quick), then the measured ones.
[[nodiscard]] std::vector<Figure> interleave(const std::vector<Contender>& contenders, const Options& options);

/// The figure with its median and range, from rounds measured earlier.
[[nodiscard]] Figure figure_of(std::string name, std::vector<double> rounds);

/// The median over the rounds of value(a, b), the figures of `name` and `to` in the same round: what slows the machine
/// for a while slows both. Empty if one of them did not run, such as a peer that is not installed.
[[nodiscard]] std::optional<double> compare(const std::vector<Figure>& figures, const std::string& name,
                                            const std::string& to, const std::function<double(double, double)>& value);

/// compare() by division.
[[nodiscard]] std::optional<double> ratio(const std::vector<Figure>& figures, const std::string& name,
                                          const std::string& to);

/// This process, and those it starts, on one core; LibTorch on one thread.
void pin_to_one_core();

/// The folder for results, created if missing: build/bench below the working directory, or $LEVIN_BENCH_DIR.
[[nodiscard]] std::filesystem::path result_folder();

/// Prints tables and figures as they come, and writes all to <name>.json in result_folder().
class Report {
 public:
  explicit Report(std::string name);

  /// Name, median, range and the ratio to the first row.
  void table(const std::string& title, const std::string& unit, const std::vector<Figure>& figures);

  /// A named number.
  void number(const std::string& key, std::optional<double> value);
  /// A named number with its required bound; a missing number is reported and not written.
  void at_most(const std::string& key, std::optional<double> value, double bound);
  void at_least(const std::string& key, std::optional<double> value, double bound);

  /// Versions of the peers that ran.
  void peers(const nlohmann::json& versions);

  void write() const;

 private:
  std::filesystem::path save() const;
  void bar(const std::string& key, std::optional<double> value, const char* kind, double bound);

  std::string name_;
  nlohmann::json out_;
};

}  // namespace bench
