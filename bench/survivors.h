// For machines on which nobody has measured yet, and for long measurements: a candidate that fails does not lose the
// measurements of the others.
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

/// The candidates that have failed, and why.
class Failures {
 public:
  /// Like interleave(), for the candidates whose first round succeeds (it is measured only if `options.quick`). The
  /// other candidates are printed with the reason.
  [[nodiscard]] std::vector<Measurement> interleave_rest(const std::vector<Candidate>& candidates, Options options) {
    std::vector<Candidate> working;
    std::vector<Measurement> first;
    for (const Candidate& candidate : candidates) {
      if (const auto measurement = attempt(candidate)) {
        first.push_back(measurement_of(candidate.name, {*measurement}));
        working.push_back(candidate);
      }
    }
    const bool measured = std::exchange(options.quick, true);  // the warm-up round has been run
    if (measured) --options.rounds;
    if (measured && options.rounds == 0) return first;
    std::vector<Measurement> measurements = interleave(working, options);
    for (size_t k = 0; measured && k < measurements.size(); ++k) {
      measurements[k].rounds.insert(measurements[k].rounds.begin(), first[k].rounds[0]);
      measurements[k] = measurement_of(measurements[k].name, measurements[k].rounds);
    }
    return measurements;
  }

  /// Runs one round of a candidate. If it fails, prints the reason and returns nullopt.
  [[nodiscard]] std::optional<double> attempt(const Candidate& candidate) {
    try {
      return candidate.run();
    } catch (const std::exception& error) {
      std::printf("%s failed: %s\n", candidate.name.c_str(), error.what());
      if (std::find(names_.begin(), names_.end(), candidate.name) == names_.end()) names_.push_back(candidate.name);
      return std::nullopt;
    }
  }

  /// Throws if a candidate has failed. Call it after the report is written.
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
