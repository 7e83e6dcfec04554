#include "levin/inference/run_config_file.h"

#include <algorithm>
#include <filesystem>

#include "levin/core/error.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> places(const std::string& given, const std::string& checkpoint) {
  std::vector<fs::path> folders;
  std::error_code code;
  if (given != checkpoint && fs::is_directory(given, code)) folders.emplace_back(given);
  const fs::path beside = fs::absolute(fs::path(checkpoint), code).lexically_normal().parent_path();
  folders.push_back(fs::path(checkpoint).has_parent_path() ? fs::path(checkpoint).parent_path() : fs::path("."));
  if (beside.filename() == "checkpoints") folders.push_back(folders.back() / "..");
  std::vector<std::string> files;
  for (const fs::path& folder : folders) {
    std::string file = (folder / "config.yaml").lexically_normal().string();
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(std::move(file));
  }
  return files;
}

// A class by name, or with options.
ClassSpec read_class(const ConfigNode& node, const std::string& path) {
  ClassSpec spec;
  Problems problems;
  (void)ValueType<ClassSpec>::read(node, spec, path, problems);
  problems.throw_if_any();
  return spec;
}

}  // namespace

RunConfigFile::RunConfigFile(const std::string& given, const std::string& checkpoint)
    : looked_for_(places(given, checkpoint)) {
  std::error_code code;
  const auto found = std::find_if(looked_for_.begin(), looked_for_.end(),
                                  [&](const std::string& file) { return fs::is_regular_file(file, code); });
  if (found == looked_for_.end()) return;
  path_ = *found;
  Problems problems;
  tree_ = read_yaml_file(path_, problems);
  problems.throw_if_any();
}

std::string RunConfigFile::why_nothing(const std::string& what) const {
  if (!path_.empty()) return path_ + " has no " + what;
  return "there is no config.yaml with a " + what + " (looked for " + join(looked_for_) + ")";
}

const ConfigNode* RunConfigFile::of_trainer(const char* key) const {
  const ConfigNode* trainer = tree_.find("trainer");
  const ConfigNode* value = trainer == nullptr ? nullptr : trainer->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<ClassSpec> RunConfigFile::model() const {
  const ConfigNode* node = tree_.find("model");
  if (node == nullptr || node->is_null()) return std::nullopt;
  return read_class(*node, "model");
}

std::optional<ClassSpec> RunConfigFile::precision() const {
  const ConfigNode* node = of_trainer("precision");
  if (node == nullptr) return std::nullopt;
  return read_class(*node, "trainer.precision");
}

std::optional<LoRAOptions> RunConfigFile::lora() const {
  const ConfigNode* node = of_trainer("callbacks");
  if (node == nullptr) return std::nullopt;
  const std::vector<ConfigNode> callbacks = node->is_list() ? node->items : std::vector<ConfigNode>{*node};
  for (const ConfigNode& one : callbacks) {
    const ClassSpec spec = read_class(one, "trainer.callbacks");
    if (spec.short_name() != "LoRA") continue;
    LoRAOptions options;
    Problems problems;
    (void)read_options(spec.init_args, options, "trainer.callbacks: LoRA.init_args", problems);
    problems.throw_if_any();
    return options;
  }
  return std::nullopt;
}

}  // namespace levin
