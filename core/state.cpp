#include "levin/core/state.h"

namespace levin {

const at::Tensor& State::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw CheckpointError("saved state has no tensor \"" + name + "\".");
  return found->second;
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
