// Takes the options of ranks that the user starts one by one, as in PyTorch's tutorials:
//   program --init-method tcp://10.0.0.1:23456 --rank 0 --world-size 2
//
//   int main(int argc, char** argv) {
//     const auto others = levin::take_init_method({argv + 1, argv + argc});   // before a Trainer is made
#pragma once

#include <string>
#include <vector>

namespace levin {

/// Removes --init-method, --rank and --world-size (with "=" or a space, "-" or "_") from a program's arguments, makes
/// this process that rank by setting RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and returns the other arguments.
/// Without them it does nothing. Throws ConfigError for one without the others, an invalid value, and, naming both, if
/// a launcher has made this process another rank.
[[nodiscard]] std::vector<std::string> take_init_method(const std::vector<std::string>& arguments);
}  // namespace levin
