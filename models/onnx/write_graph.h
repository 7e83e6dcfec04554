// Writes a graph as a file of ONNX: a ModelProto of protocol buffers. Internal.
#pragma once

#include <cstdint>
#include <string>

#include "levin/models/onnx/graph.h"

namespace levin::onnx {

/// A file of protocol buffers holds at most 2 GiB: weights are written beside it if all together exceed `most_bytes`.
inline constexpr uint64_t kMostBytes = (uint64_t{1} << 31) - (uint64_t{1} << 26);

/// Writes `path`, and `path`.data for tensors of 1 KiB and more if the weights are too large for one file. Each is
/// written whole or not at all. Throws Error naming path and cause.
void write_graph(const std::string& path, const Graph& graph, uint64_t most_bytes = kMostBytes);

}  // namespace levin::onnx
