// A checkpoint of either kind, one file or a folder of shards, opened for reading its tensors one by one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_reader.h"

namespace levin {

/// Functions that throw, throw CheckpointError as read_checkpoint and read_sharded_checkpoint.
class AnyCheckpoint {
 public:
  struct Tensor {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> shape = {};
  };

  explicit AnyCheckpoint(const std::string& path);

  [[nodiscard]] const ConfigNode& values() const { return sharded_ ? sharded_->values() : file_->values(); }
  /// By name, without their data.
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  /// One of tensors(), checked.
  [[nodiscard]] at::Tensor read(const std::string& name) const;

 private:
  std::unique_ptr<CheckpointFile> file_ = nullptr;
  std::unique_ptr<ShardedReader> sharded_ = nullptr;
  std::map<std::string, Tensor> tensors_ = {};
};

}  // namespace levin
