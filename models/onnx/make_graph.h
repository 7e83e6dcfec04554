// Translates a traced program to a graph of ONNX. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "levin/models/onnx/graph.h"
#include "levin/models/onnx/program.h"

namespace levin::onnx {

/// Inputs that no output depends on are left out. Throws Error listing every operator without a translation, with how
/// often it is called and where, and Error if no output depends on an input.
[[nodiscard]] Graph make_graph(const Program& program, const std::vector<std::string>& output_names, int64_t opset);

}  // namespace levin::onnx
