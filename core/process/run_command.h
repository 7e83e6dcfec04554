// Runs another program to its end: sbatch, scontrol. Without a shell, so arguments are not interpreted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace levin {

inline constexpr size_t kMaxCommandOutput = 1 << 20;

struct CommandResult {
  int status = 0;           // exit status; 128 + N if signal N ended it
  std::string output = "";  // of both streams, as they came; the first kMaxCommandOutput bytes
};

/// words[0] is searched on PATH; standard input is empty. Blocks until the program ends. Throws Error naming it if it
/// cannot be started.
[[nodiscard]] CommandResult run_command(std::vector<std::string> words);

}  // namespace levin
