// For machines that nobody has measured on yet, and long measurements: a contender that fails does not take the others'
// figures with it.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rounds.h"

namespace bench {

/// The contenders that have failed, and why.
class Failures {
 public:
  /// As interleave(), of those contenders whose first round, which is not measured unless `options.quick`, succeeds.
  /// The others are printed with the reason.
  [[nodiscard]] std::vector<Figure> interleave_rest(const std::vector<Contender>& contenders, Options options) {
    std::vector<Contender> working;
    std::vector<Figure> first;
    for (const Contender& contender : contenders) {
      if (const auto figure = attempt(contender)) {
        first.push_back(figure_of(contender.name, {*figure}));
        working.push_back(contender);
      }
    }
    const bool measured = std::exchange(options.quick, true);  // that round has been
    if (measured) --options.rounds;
    if (measured && options.rounds == 0) return first;
    std::vector<Figure> figures = interleave(working, options);
    for (size_t k = 0; measured && k < figures.size(); ++k) {
      figures[k].rounds.insert(figures[k].rounds.begin(), first[k].rounds[0]);
      figures[k] = figure_of(figures[k].name, figures[k].rounds);
    }
    return figures;
  }

  /// One round of a contender; unset, and printed with the reason, if it fails.
  [[nodiscard]] std::optional<double> attempt(const Contender& contender) {
    try {
      return contender.run();
    } catch (const std::exception& error) {
      std::printf("%s failed: %s\n", contender.name.c_str(), error.what());
      if (std::find(names_.begin(), names_.end(), contender.name) == names_.end()) names_.push_back(contender.name);
      return std::nullopt;
    }
  }

  /// After the report is written: throws if a contender has failed.
  void check() const {
    if (names_.empty()) return;
    std::string text;
    for (const std::string& name : names_) text += (text.empty() ? "" : "; ") + name;
    throw std::runtime_error("failed, see above: " + text);
  }

 private:
  std::vector<std::string> names_;
};

}  // namespace bench
