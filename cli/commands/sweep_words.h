// The words of a levin sweep command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/core/value.h"

namespace levin {

struct SweepWords {
  std::vector<std::string> names = {};  // what is no option
  std::string folder = "", params = "", value = "", output = "", timeout = "";
  bool json = false, prepare = false, slurm = false;
  std::vector<std::pair<std::string, std::string>> slurm_options = {};
};

/// `help`: whether --help is among them.
[[nodiscard]] SweepWords read_sweep_words(std::vector<std::string> words, bool& help, Problems& problems);

}  // namespace levin
