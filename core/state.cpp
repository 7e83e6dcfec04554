#include "levin/core/state.h"

#include <utility>
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

namespace {

// Each function calls its counterpart of the other name; if the object is already being asked, the default. An override
// of either name, called by either, runs once if it calls its base by its own name. Called by its own name, it runs
// twice if it calls its base by the other one, or if it calls its base and the other name is overridden to call it:
// nothing shows that it is running already.
thread_local const Stateful* saving = nullptr;
thread_local const Stateful* loading = nullptr;

class Asking {
 public:
  Asking(const Stateful*& asked, const Stateful* object) : asked_(asked), before_(std::exchange(asked, object)) {}
  ~Asking() { asked_ = before_; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  const Stateful*& asked_;
  const Stateful* before_;
};

}  // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

State Stateful::state_dict() const {
  if (saving == this) return default_state_dict();
  const Asking asking(saving, this);
  return state();
}

void Stateful::load_state_dict(const State& saved) {
  if (loading == this) return load_default_state_dict(saved);
  const Asking asking(loading, this);
  load_state(saved);
}

#pragma GCC diagnostic pop

State Stateful::state() const {
  if (saving == this) return default_state_dict();
  const Asking asking(saving, this);
  return state_dict();
}

void Stateful::load_state(const State& saved) {
  if (loading == this) return load_default_state_dict(saved);
  const Asking asking(loading, this);
  load_state_dict(saved);
}

}  // namespace levin
