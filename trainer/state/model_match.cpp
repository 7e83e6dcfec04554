#include "levin/trainer/state/model_match.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <typeinfo>

#include "levin/core/options/registry.h"
#include "levin/core/tensors.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/step/run_messages.h"

namespace levin {

namespace {

constexpr size_t kShownDifferences = 6;  // one per layer fills a screen

std::string first_of(std::vector<std::string> lines) {
  const size_t count = lines.size();
  lines.resize(std::min(count, kShownDifferences));
  const std::string more = count > lines.size() ? ", and " + std::to_string(count - lines.size()) + " more" : "";
  return join(lines) + more;
}

// "ResNet": the last part of the class's name, which a run file may give without the rest.
std::string class_name(const ClassSpec& spec) {
  const std::string name = spec.short_name();
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

std::string saved_class(const State& checkpoint) {
  return checkpoint.has("model_class") ? class_name(checkpoint.get<ClassSpec>("model_class")) : "";
}

const ConfigNode* saved_options(const State& checkpoint) {
  const ConfigNode* options = checkpoint.values.find("hyper_parameters");
  return options == nullptr || options->is_null() ? nullptr : options;
}

// "it is of ResNet, and this run's model is MLP"; "" if the classes are the same, or the checkpoint does not say. A
// program calls a class by its C++ name, a run file by the name that it is registered under.
std::string other_class_text(const LightningModule& module, const State& checkpoint) {
  const std::string saved = saved_class(checkpoint), own = class_name(model_class(module));
  if (saved.empty() || saved == own || saved == detail::readable_type_name(typeid(module))) return "";
  return "it is of " + cut_text(saved, 100) + ", and this run's model is " + own;
}

}  // namespace

State module_state(const LightningModule& module) {
  State state;
  for (const auto& item : module.named_parameters()) state.tensors[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) state.tensors[item.key()] = item.value();
  return state;
}

ClassSpec model_class(const LightningModule& module) {
  if (!ModuleAccess::made_from(module).empty()) return ModuleAccess::made_from(module);
  return {detail::readable_type_name(typeid(module)), {}, {}};
}

std::vector<std::string> weight_differences(const LightningModule& module, const State& checkpoint) {
  return weight_differences(module_state(module), checkpoint);
}

std::vector<std::string> weight_differences(const State& own, const State& checkpoint) {
  const State saved = checkpoint.part("model");
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : own.tensors) {
    const auto found = saved.tensors.find(name);
    if (found == saved.tensors.end()) {
      differences.push_back("missing " + name + " " + shape_text(tensor.sizes()));
    } else if (found->second.sizes() != tensor.sizes()) {
      differences.push_back(name + " is " + shape_text(found->second.sizes()) + " in the file and " +
                            shape_text(tensor.sizes()) + " in the module");
    }
  }
  for (const auto& [name, tensor] : saved.tensors) {
    if (!own.tensors.contains(name)) differences.push_back("unexpected " + name + " " + shape_text(tensor.sizes()));
  }
  return differences;
}

std::string other_model_text(const LightningModule& module, const State& checkpoint) {
  if (!module.strict_loading()) return "";
  if (std::string text = other_class_text(module, checkpoint); !text.empty()) return text;
  std::vector<std::string> differences = weight_differences(module, checkpoint);
  std::erase_if(differences, [](const std::string& line) { return line.starts_with("unexpected "); });  // adapters
  const ConfigNode* options = saved_options(checkpoint);
  if (differences.empty() || (options != nullptr && options->same_as(module.hparams()))) return "";
  return "it is of a " + saved_class(checkpoint) + " with other options: " + first_of(std::move(differences));
}

std::vector<std::string> check_weights(const LightningModule& module, const State& own, const State& checkpoint,
                                       const std::string& path) {
  std::vector<std::string> differences = weight_differences(own, checkpoint);
  if (differences.empty() || !module.strict_loading()) return differences;
  const std::string other = other_class_text(module, checkpoint);
  throw CheckpointError(path + ": its weights do not fit the module" + (other.empty() ? "" : " (" + other + ")") +
                        ": " + first_of(differences) +
                        ". Make the module with the hyper-parameters it was saved with, or let it load what fits "
                        "(set_strict_loading(false)).");
}

void restore_weights(LightningModule& module, const State& checkpoint, const std::string& path,
                     const std::function<void(const at::Tensor&, const at::Tensor&)>& copy) {
  const std::vector<std::string> differences = check_weights(module, module_state(module), checkpoint, path);
  if (!differences.empty()) {
    warn_of_run(path + ": these weights are left unchanged: " + join(differences) + ".");
  } else if (const std::string other = other_class_text(module, checkpoint); !other.empty()) {
    warn_of_run(path + ": " + other + ". The weights have the same names and shapes, so they are loaded.");
  }
  const State saved = checkpoint.part("model");
  const at::AutoGradMode no_grad(false);
  for (const auto& [name, tensor] : module_state(module).tensors) {
    const auto found = saved.tensors.find(name);
    if (found != saved.tensors.end() && found->second.sizes() == tensor.sizes()) copy(tensor, found->second);
  }
}

void restore_weights(LightningModule& module, const State& checkpoint, const std::string& path) {
  restore_weights(module, checkpoint, path, [](const at::Tensor& own, const at::Tensor& saved) { own.copy_(saved); });
}

}  // namespace levin
