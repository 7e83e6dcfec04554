// A .pt2 file as a whole: its program, its weights, its constants. Internal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/models/exported/graph.h"
#include "levin/models/exported/read_tensors.h"

namespace levin::exported {

// Note [Two graphs in one file]
// tools/export_model.py records a model in training mode and in evaluation mode, and writes both programs into one
// archive, as torch.export's package does: training as the model "model", evaluation as "evaluation". They have one set
// of weights, which are read once. A file of torch.export.save has one program, and does not say what the other mode
// computes.

/// What the model computes in evaluation mode.
struct EvaluationContents {
  Program program;
  std::vector<StoredTensor> constants;
};

struct Contents {
  Program program;
  std::vector<StoredTensor> weights;    // parameters and persistent buffers
  std::vector<StoredTensor> constants;  // other buffers, and tensors in the code
  c10::Device exported_on = c10::Device(c10::kCPU);
  bool has_evaluation = false;                        // the file says what evaluation computes
  std::optional<EvaluationContents> evaluation = {};  // nothing where it is the same
};

/// Throws Error that names the file and says what to save instead.
[[nodiscard]] Contents read_archive(const std::string& path);

}  // namespace levin::exported
