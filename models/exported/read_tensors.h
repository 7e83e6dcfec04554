// Weights and constants of a .pt2 file: the bytes of each storage, and a list of the tensors in it. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "levin/models/exported/json_view.h"
#include "levin/models/exported/zip_archive.h"

namespace levin::exported {

struct StoredTensor {
  std::string name;
  at::Tensor tensor;
  bool requires_grad = false;
};

/// The tensors of `list` (data/weights/model_weights_config.json) in the file's order, their storages in `folder` of
/// the archive. Names with the same place in the same storage get one tensor; other tensors of a storage share its
/// memory. Throws Error if a tensor reaches over its storage, or would need Python's pickle.
[[nodiscard]] std::vector<StoredTensor> read_tensors(const ZipArchive& archive, const std::string& folder,
                                                     const JsonView& list);

}  // namespace levin::exported
