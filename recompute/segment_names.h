// Which submodules are computed again in backward, by the names that trainer.recompute gives. Internal.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/recompute/recompute_options.h"

namespace torch::nn {
class Module;
}

namespace levin {

// Note [How segments are named]
// modules: each entry is a shell pattern ("encoder.layer.*", "h.[0-3]", "net"). Every submodule whose name
// matches, without those within another match of the same pattern, is a segment. A Sequential or a list that is named
// means all of its blocks in one segment. "h.2..h.5" is one segment of four: consecutive blocks of one
// torch::nn::Sequential, or of one list that levin::call_chain calls.
// modules with segments: k: every match is a Sequential or a list of n blocks, cut into k parts of n / k blocks; the
// last, with the rest, is not recomputed, because its backward follows immediately (torch.utils.checkpoint_sequential).
// checkpoints: blocks of Sequentials or lists, by name, pattern, or the last part of the name ("pred" for "net.pred").
// In each of these the blocks from the beginning to the first checkpoint are a segment, then those after it to the
// second, and so on; what follows the last one is not recomputed (Paddle's RecomputeOptimizer).
// Entries may be nested (modules: [encoder, "encoder.layer.*"]): segments nest. Two that share some blocks
// and not others are an error.

/// One segment: a submodule that is called through levin::call, or consecutive blocks of a Sequential or a list.
struct NamedSegment {
  std::string name;                              // "h.2", "h.2..h.5"
  std::vector<torch::nn::Module*> modules = {};  // one, or the blocks in their order
  bool chain = false;                            // blocks of a Sequential or a list: called one after another
};

/// The segments that `options` name in `root`, in the order of its submodules, outer ones first. Throws ConfigError,
/// below `path` (TrainerOptions.recompute), with every problem: a name that matches nothing (with the nearest names), a
/// range that is not one of consecutive blocks, too many segments, an entry without blocks to cut, partly shared
/// blocks.
[[nodiscard]] std::vector<NamedSegment> named_segments(const torch::nn::Module& root, const RecomputeOptions& options,
                                                       const std::string& path = "TrainerOptions.recompute");

}  // namespace levin
