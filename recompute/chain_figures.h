// From what was recorded of a few passes to what each block costs. Internal.
#pragma once

#include <string>
#include <vector>

#include "levin/recompute/chain_blocks.h"
#include "levin/recompute/chain_cost.h"
#include "levin/recompute/chain_recorder.h"

namespace levin {

/// Throws ConfigError: a step that cannot be planned, and why.
[[noreturn]] void refuse_plan(const std::string& why);

using Stations = std::vector<Station>;

/// What a pass with each choice of segments records, with times that are typical of several such passes.
struct Passes {
  Stations plain = {};
  Stations again = {};  // every block a segment
};

/// The last pass of each kind, with typical times: blocks of one class and size take as long as each other, so each is
/// given their mean, and of several passes the median counts. Throws ConfigError where passes differ in their blocks.
[[nodiscard]] Passes typical_passes(const std::vector<Stations>& plain, const std::vector<Stations>& again);

/// The blocks' costs, without the batch, the weights and the update.
[[nodiscard]] ChainCost chain_cost(const ChainBlocks& blocks, const Passes& passes);

/// What of it does not grow with the batch.
[[nodiscard]] ChainCost without_samples(ChainCost cost);

}  // namespace levin
