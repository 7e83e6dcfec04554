// The words of a levin sweep command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "levin/cli/config/merge.h"
#include "levin/core/value.h"

namespace levin {

struct SweepWords {
  std::vector<std::string> names = {};      // what precedes the first override
  std::vector<Override> changes = {};       // of keys of the sweep file
  std::vector<std::string> run_words = {};  // the other overrides, as `levin fit` takes them
  std::string folder = "", params = "", value = "", output = "", timeout = "";
  bool json = false, prepare = false, slurm = false;
  std::vector<std::pair<std::string, std::string>> slurm_options = {};
};

/// `help`: whether --help is among them.
[[nodiscard]] SweepWords read_sweep_words(std::vector<std::string> words, bool& help, Problems& problems);

}  // namespace levin
