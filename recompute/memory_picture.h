// Draws the memory of a training step over time as an SVG: one curve for each choice of segments, and the memory common
// to all as bands below them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/recompute/chain_cost.h"

namespace levin {

struct PictureCurve {
  std::string name = "";
  MemoryPrediction prediction = {};
};

struct MemoryPicture {
  std::string title = "";
  const ChainCost* cost = nullptr;  // for the bands: parameters, optimizer state, gradients, the batch
  std::vector<PictureCurve> curves = {};
  std::optional<int64_t> budget = std::nullopt;  // a dashed line
};

/// The text of an .svg file; the same picture gives the same text.
[[nodiscard]] std::string draw_memory(const MemoryPicture& picture);

}  // namespace levin
