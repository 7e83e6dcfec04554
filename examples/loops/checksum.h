// The last line of the programs in this folder: their weights as one number, by which a test compares two programs.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

/// Returns the FNV-1a hash of the tensors' bytes, as 16 hexadecimal digits.
inline std::string checksum(const std::vector<torch::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor dense = tensor.detach().cpu().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(dense.const_data_ptr());
    for (size_t k = 0; k < dense.nbytes(); ++k) hash = (hash ^ bytes[k]) * 0x100000001b3;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}
