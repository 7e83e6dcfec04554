// Where load_weights finds its tensors: one file, shards listed in an index, a folder with either, or a checkpoint, in
// one file or sharded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_reader.h"

namespace levin {

class WeightsSource {
 public:
  struct Tensor {
    std::vector<int64_t> shape = {};
    uint64_t bytes = 0;
    /// Reads the tensor while the source exists. May be called from several threads. Throws CheckpointError.
    std::function<at::Tensor()> read = nullptr;
  };

  /// Opens the files and checks their headers. Throws CheckpointError.
  explicit WeightsSource(const std::string& path);

  /// The tensors by their names in the file, in a Levin checkpoint without "model.".
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  const CheckpointFile& open(const std::string& path);
  void add_file(const std::string& path);
  void add_index(const std::string& path);
  void add_sharded(const std::string& folder);

  std::vector<std::unique_ptr<CheckpointFile>> files_ = {};
  std::unique_ptr<ShardedReader> sharded_ = nullptr;
  std::map<std::string, Tensor> tensors_ = {};
};

}  // namespace levin
