// Which file a path of load_for_inference means.
#pragma once

#include <string>

#include "levin/core/which_checkpoint.h"

namespace levin {

struct FoundModel {
  std::string path = "";
  bool is_huggingface = false;  // a folder with config.json; else a checkpoint, of either kind
  std::string adapter = "";     // the folder of PEFT's that the path was, whose base model `path` is
};

/// `path`: a checkpoint; a run's folder, whose run.json names the best one; a folder with checkpoints, of which the
/// newest is taken; a folder of Hugging Face's; or an adapter's folder of PEFT's that names its base model as a folder.
/// Checkpoints that cannot be read are named in a warning and passed over. Throws CheckpointError where there is none.
[[nodiscard]] FoundModel find_model(const std::string& path, WhichCheckpoint which);

}  // namespace levin
