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

// The object whose state_dict() or load_state_dict() calls the deprecated function: if no subclass overrides that
// function, it must not call back.
thread_local const Stateful* calling_deprecated = nullptr;

class CallingDeprecated {
 public:
  explicit CallingDeprecated(const Stateful* object) : before_(std::exchange(calling_deprecated, object)) {}
  ~CallingDeprecated() { calling_deprecated = before_; }
  CallingDeprecated(const CallingDeprecated&) = delete;
  CallingDeprecated& operator=(const CallingDeprecated&) = delete;

 private:
  const Stateful* before_;
};

}  // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

State Stateful::state_dict() const {
  const CallingDeprecated calling(this);
  return state();
}

void Stateful::load_state_dict(const State& saved) {
  const CallingDeprecated calling(this);
  load_state(saved);
}

#pragma GCC diagnostic pop

State Stateful::state() const {
  return calling_deprecated == this ? default_state_dict() : state_dict();
}

void Stateful::load_state(const State& saved) {
  calling_deprecated == this ? load_default_state_dict(saved) : load_state_dict(saved);
}

}  // namespace levin
