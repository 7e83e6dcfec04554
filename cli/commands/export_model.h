// levin export --config run.yaml --format onnx --output model.onnx: a run's model as a file for other programs.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// `words` follow "levin export": its own options and those of a run. Returns kExitOk, or kExitBadConfig for mistakes
/// in them; throws Error where the run or the export fails.
int run_export(const std::vector<std::string>& words, int width);

}  // namespace levin
