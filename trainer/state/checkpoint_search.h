// Finds the checkpoint a run starts from: a path, "best", "last", or, with auto_resume, the newest.
#pragma once

#include <string>
#include <vector>

#include "levin/core/state.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/state/progress_state.h"

namespace levin {

/// A checkpoint with a run's state in it.
struct FoundCheckpoint {
  std::string path;
  HowFar how_far;
};

/// Those of a folder, newest first; none if the folder does not exist. Files that cannot be read are reported as a
/// warning and left out, files with weights only are left out.
[[nodiscard]] std::vector<FoundCheckpoint> find_checkpoints(const std::string& folder);

/// The path and its contents; both empty: start from scratch.
struct StartingPoint {
  std::string path = "";
  State checkpoint = {};
  bool continues = false;  // in the folder of the run that saved it, by auto_resume
};

/// Resolves run.entry.ckpt_path. A damaged newest checkpoint is named in a warning, and the one before it is
/// taken; a path that was given must be good. Throws CheckpointError where there is none.
[[nodiscard]] StartingPoint find_start(Run& run);

}  // namespace levin
