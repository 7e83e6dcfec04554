// Where load_weights finds its tensors: one file, shards behind an index, or a folder with either.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/trainer/checkpoint_file.h"
#include "levin/trainer/weights.h"

namespace levin {

class WeightsSource {
 public:
  struct Tensor {
    const CheckpointFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  /// Opens the files and checks their headers. Throws CheckpointError.
  explicit WeightsSource(const std::string& path);

  /// By the name it has in the file; of a Levin checkpoint the model's, without "model.".
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  const CheckpointFile& open(const std::string& path);
  void add_file(const std::string& path);
  void add_index(const std::string& path);

  std::vector<std::unique_ptr<CheckpointFile>> files_ = {};
  std::map<std::string, Tensor> tensors_ = {};
};

/// The name by the first rule that fits, or as it was; none if the rule leaves it out.
[[nodiscard]] std::optional<std::string> renamed(const std::string& name, const std::vector<RenameRule>& rules);

}  // namespace levin
