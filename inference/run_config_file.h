// The config.yaml of a run's folder, for what a checkpoint does not say of its model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/adapters/lora_options.h"
#include "levin/core/registry.h"

namespace levin {

class RunConfigFile {
 public:
  /// Looks in the folder `given`, if it is one, then beside the checkpoint, and where that is in a folder called
  /// checkpoints, above it. Throws ConfigError with each mistake of the file that is found first and its place.
  RunConfigFile(const std::string& given, const std::string& checkpoint);

  /// For messages: "there is no config.yaml with a model (looked for A, B)", or "A has no model".
  [[nodiscard]] std::string why_nothing(const std::string& what) const;

  /// The file, or where it would be.
  [[nodiscard]] const std::string& where_to_write() const { return path_.empty() ? looked_for_.back() : path_; }

  /// What it says; unset if it says nothing of it. Throw ConfigError naming file and place for values of another kind.
  [[nodiscard]] std::optional<ClassSpec> model() const;
  [[nodiscard]] std::optional<ClassSpec> precision() const;
  /// Those of the first callback LoRA.
  [[nodiscard]] std::optional<LoRAOptions> lora() const;

 private:
  [[nodiscard]] const ConfigNode* of_trainer(const char* key) const;
  std::vector<std::string> looked_for_ = {};
  std::string path_ = "";
  ConfigNode tree_ = ConfigNode::map();
};

}  // namespace levin
