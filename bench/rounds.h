// Times several ways of doing the same thing in one interleaved run: every round runs each once, in turning order, on
// one pinned core, so that a noisy machine disturbs all alike. Figures are medians; what is compared are ratios.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace bench {

struct Contender {
  std::string name;
  std::function<double()> run;  // returns the figure of one round, e.g. microseconds a step
};

struct Figure {
  std::string name;
  double median = 0, lowest = 0, highest = 0;
  std::vector<double> rounds = {};
};

/// One unmeasured round, then `rounds` measured ones.
[[nodiscard]] std::vector<Figure> interleave(const std::vector<Contender>& contenders, int rounds);

/// The median of the rounds' own ratios: what slows the machine for a while slows both of a round.
[[nodiscard]] double ratio(const Figure& figure, const Figure& to);

/// This process on one core, LibTorch on one thread.
void pin_to_one_core();

/// Prints name, median, range and ratio() to the first contender.
void print_table(const std::string& title, const std::string& unit, const std::vector<Figure>& figures);

/// Writes figures and ratios, with the machine's description, to build/bench/<name>.json below the working directory,
/// or below $LEVIN_BENCH_DIR. `extra`: further named numbers.
void write_json(const std::string& name, const std::string& unit, const std::vector<Figure>& figures,
                const std::vector<std::pair<std::string, double>>& extra);

}  // namespace bench
