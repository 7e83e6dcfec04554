#include "levin/core/state.h"

#include <vector>

namespace levin {

const at::Tensor& State::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw CheckpointError("saved state has no tensor \"" + name + "\".");
  return found->second;
}

const ConfigNode& State::saved(const std::string& key, bool as_text) const {
  const ConfigNode* node = values.find(key);
  if (node == nullptr) {
    std::vector<std::string> known;
    for (const ConfigEntry& entry : values.entries) known.push_back(entry.key);
    throw CheckpointError("saved state has no \"" + key + "\"." +
                          (known.empty() ? " It is empty." : known_names(key, known)));
  }
  if (as_text && node->is_scalar() && !node->quoted) {
    throw CheckpointError("saved state: " + key + ": expected a string, got " + node->shown() + ".");
  }
  return *node;
}

void State::put(const std::string& key, const State& part) {
  values.set(key, part.values);
  const std::string prefix = key + ".";
  std::erase_if(tensors, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  for (const auto& [name, tensor] : part.tensors) tensors[prefix + name] = tensor;
}

State State::part(const std::string& key) const {
  State found;
  if (const ConfigNode* node = values.find(key)) found.values = *node;
  const std::string prefix = key + ".";
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix); ++it) {
    found.tensors[it->first.substr(prefix.size())] = it->second;
  }
  return found;
}

}  // namespace levin
