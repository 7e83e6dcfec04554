// Where load_weights finds its tensors: one file, shards behind an index, or a folder with either.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/checkpoint/checkpoint_file.h"

namespace levin {

class WeightsSource {
 public:
  struct Tensor {
    const CheckpointFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  /// Opens the files and checks their headers. Throws CheckpointError.
  explicit WeightsSource(const std::string& path);

  /// By its name in the file; in a Levin checkpoint without "model.".
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  const CheckpointFile& open(const std::string& path);
  void add_file(const std::string& path);
  void add_index(const std::string& path);

  std::vector<std::unique_ptr<CheckpointFile>> files_ = {};
  std::map<std::string, Tensor> tensors_ = {};
};

}  // namespace levin
