// Computes the cost of each block from a few recorded passes. Internal.
#pragma once

#include <string>
#include <vector>

#include "levin/recompute/chain_blocks.h"
#include "levin/recompute/chain_cost.h"
#include "levin/recompute/chain_recorder.h"

namespace levin {

/// Throws ConfigError for a step that cannot be planned, with the reason.
[[noreturn]] void refuse_plan(const std::string& why);

using Stations = std::vector<Station>;

/// Recorded passes with and without segments, with typical times of several passes.
struct Passes {
  Stations plain = {};
  Stations again = {};  // every block a segment
};

/// The last pass of each kind, with typical times: blocks of one class and size take as long as each other, so each is
/// given their mean, and of several passes the median counts. again[k] is the pass that came right after plain[k].
/// Throws ConfigError where passes differ in their blocks.
[[nodiscard]] Passes typical_passes(const std::vector<Stations>& plain, const std::vector<Stations>& again);

/// The blocks' costs, without the batch, the weights and the update.
[[nodiscard]] ChainCost chain_cost(const ChainBlocks& blocks, const Passes& passes);

/// The part of it that does not grow with the batch.
[[nodiscard]] ChainCost without_samples(ChainCost cost);

}  // namespace levin
