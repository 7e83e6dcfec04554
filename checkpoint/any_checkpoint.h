// A checkpoint of either kind, one file or a folder of shards, opened for reading its tensors one by one.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_reader.h"

namespace levin {

/// A checkpoint opened for reading. Its functions throw CheckpointError like read_checkpoint and
/// read_sharded_checkpoint.
class AnyCheckpoint {
 public:
  struct Tensor {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> shape = {};
  };

  explicit AnyCheckpoint(const std::string& path);

  [[nodiscard]] const ConfigNode& values() const { return sharded_ ? sharded_->values() : file_->values(); }
  /// The tensors by name, without their data.
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  /// Returns one of tensors() and verifies its checksum.
  [[nodiscard]] at::Tensor read(const std::string& name) const;

 private:
  std::unique_ptr<CheckpointFile> file_ = nullptr;
  std::unique_ptr<ShardedReader> sharded_ = nullptr;
  std::map<std::string, Tensor> tensors_ = {};
};

}  // namespace levin
