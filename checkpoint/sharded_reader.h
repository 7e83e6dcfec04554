// Reads the tensors of a sharded checkpoint one by one, each assembled from the shards' parts.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/core/state.h"

namespace levin {

/// Its functions throw CheckpointError naming the file that is missing, damaged or of a different save.
class ShardedReader {
 public:
  /// What one shard holds of a tensor.
  struct Part {
    size_t rank = 0;
    int64_t begin = 0;  // first number, of the whole laid flat
    int64_t size = 0;   // numbers
    SafetensorsEntry entry = {};
  };
  struct Tensor {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> shape = {};  // of the whole
    std::vector<Part> parts = {};     // fill it exactly once, in order
  };

  /// Reads and checks the record and all headers, of which one file is open at a time, before anything is allocated.
  explicit ShardedReader(const std::string& folder);

  /// The run's values.
  [[nodiscard]] const ConfigNode& values() const { return record_.values; }
  /// The tensors by name. A tensor that is equal on all ranks is read from the first shard that has it.
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  /// Returns the full tensor and verifies its checksums. Keeps the shards that it reads open. May be called from
  /// several threads.
  [[nodiscard]] at::Tensor read(const std::string& name) const;
  /// Reads everything, with one file open at a time.
  [[nodiscard]] State read_all() const;

 private:
  [[nodiscard]] std::string shard_path(size_t rank) const;
  void check_shard(size_t rank, const CheckpointFile& shard) const;
  [[nodiscard]] const CheckpointFile& open_shard(size_t rank) const;
  void collect_parts();
  void check_shape(const std::string& key, const std::vector<int64_t>& shape) const;
  void check_parts(const std::string& key, Tensor& tensor);

  std::string folder_;
  std::string path_;  // of the record
  ShardedRecord record_;
  std::map<std::string, Tensor> tensors_ = {};
  int64_t shards_bytes_ = 0;
  mutable std::mutex mutex_ = {};
  mutable std::map<size_t, std::unique_ptr<CheckpointFile>> open_ = {};  // by rank
};

}  // namespace levin
