#include "levin/checkpoint/any_checkpoint.h"

#include <algorithm>
#include <filesystem>

namespace levin {

AnyCheckpoint::AnyCheckpoint(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    sharded_ = std::make_unique<ShardedReader>(path);
    for (const auto& [name, tensor] : sharded_->tensors()) tensors_[name] = {tensor.dtype, tensor.shape};
  } else {
    file_ = std::make_unique<CheckpointFile>(path);
    for (const SafetensorsEntry& entry : file_->file().entries()) tensors_[entry.name] = {entry.dtype, entry.shape};
  }
}

at::Tensor AnyCheckpoint::read(const std::string& name) const {
  if (sharded_ != nullptr) return sharded_->read(name);
  const auto& entries = file_->file().entries();
  return file_->read(
      *std::find_if(entries.begin(), entries.end(), [&](const SafetensorsEntry& entry) { return entry.name == name; }));
}

}  // namespace levin
