// Translates a traced program to a graph of ONNX. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "levin/models/onnx/graph.h"
#include "levin/models/onnx/program.h"

namespace levin::onnx {

struct PortNames {
  std::vector<std::string> inputs = {};  // of all, or of those that an output depends on; none: those of the trace
  std::vector<std::string> outputs = {};
};

/// Inputs that no output depends on are left out. Throws Error listing every operator without a translation, with how
/// often it is called and where; Error if no output depends on an input, or an output has no translation; ConfigError
/// for another number of names than of inputs.
[[nodiscard]] Graph make_graph(const Program& program, const PortNames& names, int64_t opset);

}  // namespace levin::onnx
