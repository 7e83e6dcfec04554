// Finds the checkpoint from which a run starts: a path, "best", "last", or, with auto_resume, the newest.
#pragma once

#include <string>
#include <vector>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/state/progress_state.h"

namespace levin {

/// A checkpoint that contains a run's state.
struct FoundCheckpoint {
  std::string path;
  HowFar how_far;
};

/// A ckpt_path like "best" that starts from the weights in the module where no checkpoint is the best: the default of
/// `levin predict` and `levin export`.
inline constexpr const char* kBestIfAny = "best, if there is one";

/// Returns the checkpoints of a folder, newest first; none if the folder does not exist. Files that cannot be read are
/// reported as a warning and left out. `of_weights`: weights-only checkpoints, by their steps, instead of full ones.
[[nodiscard]] std::vector<FoundCheckpoint> find_checkpoints(const std::string& folder, bool of_weights = false);

/// The path and contents of the checkpoint; both empty: start from scratch.
struct StartingPoint {
  std::string path = "";
  State checkpoint = {};
  bool continues = false;  // in the folder of the run that saved it, by auto_resume
};

/// Resolves run.entry.ckpt_path: a checkpoint, "best", "last", or a run's folder, of which a fit takes the newest
/// checkpoint and an evaluation the best. A damaged newest checkpoint is named in a warning, and the one before it is
/// taken; a path that was given must be good. Earlier runs of other models are named in a warning and passed over.
/// Throws CheckpointError where there is none.
[[nodiscard]] StartingPoint find_start(Run& run);

}  // namespace levin
