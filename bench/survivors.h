// For machines that nobody has measured on yet: a contender that fails does not take the others' figures with it.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "rounds.h"

namespace bench {

/// The contenders that have failed, and why.
class Failures {
 public:
  /// As interleave(), of those contenders whose first round, which is not measured (unless quick), succeeds. The others
  /// are printed with the reason.
  [[nodiscard]] std::vector<Figure> interleave_rest(const std::vector<Contender>& contenders, Options options) {
    std::vector<Contender> working;
    std::vector<Figure> first;
    for (const Contender& contender : contenders) {
      try {
        first.push_back(figure_of(contender.name, {contender.run()}));
        working.push_back(contender);
      } catch (const std::exception& error) {
        std::printf("%s failed: %s\n", contender.name.c_str(), error.what());
        if (std::find(names_.begin(), names_.end(), contender.name) == names_.end()) names_.push_back(contender.name);
      }
    }
    if (options.quick) return first;
    options.quick = true;  // that round has been
    return interleave(working, options);
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
