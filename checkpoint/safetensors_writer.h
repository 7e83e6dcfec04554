// Writes safetensors files: at once, or header and data separately, to put checksums into the header.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"

namespace levin {

/// A tensor to be written: dense, on the CPU.
struct SafetensorsItem {
  std::string name;
  at::Tensor tensor;
};

/// Strings by key, in the order in which the header holds them.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// Returns the tensors in the order of their data. Throws CheckpointError naming a tensor that the format cannot hold.
[[nodiscard]] std::vector<SafetensorsItem> safetensors_items(const std::map<std::string, at::Tensor>& tensors);

/// Returns the header preceded by its length; the items' data follow it. Throws CheckpointError if it gets too large or
/// a name is not UTF-8.
[[nodiscard]] std::string safetensors_header(const std::vector<SafetensorsItem>& items,
                                             const SafetensorsMetadata& metadata);

/// Writes such a header and the items' data durably, completely or not at all. Throws Error naming path and cause.
LockedFile write_safetensors_file(const std::string& path, const std::string& header,
                                  const std::vector<SafetensorsItem>& items);

/// Writes header and data in one call.
void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace levin
