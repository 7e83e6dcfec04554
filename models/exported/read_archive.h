// A .pt2 file as a whole: its program, its weights, its constants. Internal.
#pragma once

#include <string>
#include <vector>

#include "levin/models/exported/graph.h"
#include "levin/models/exported/read_tensors.h"

namespace levin::exported {

struct Contents {
  Program program;
  std::vector<StoredTensor> weights;    // parameters and persistent buffers
  std::vector<StoredTensor> constants;  // other buffers, and tensors in the code
  c10::Device exported_on = c10::Device(c10::kCPU);
};

/// Throws Error that names the file and says what to save instead.
[[nodiscard]] Contents read_archive(const std::string& path);

}  // namespace levin::exported
