// The state of a part of a run: small values as a tree, tensors by name. Checkpoints contain nothing else.
//
//   State state;                                    const double best = saved.get<double>("best");
//   state.set("best", best_);                       exp_avg_ = saved.tensor("exp_avg");
//   state.tensors["exp_avg"] = exp_avg_;
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin {

/// Values and tensors by name. What is read from a checkpoint is not trusted: a name that is missing, or a value of a
/// different type, is a CheckpointError.
struct State {
  ConfigNode values = ConfigNode::map();
  std::map<std::string, at::Tensor> tensors = {};

  template <class T>
  void set(const std::string& key, const T& value) {
    values.set(key, ValueType<T>::write(value));
  }

  [[nodiscard]] bool has(const std::string& key) const { return values.find(key) != nullptr; }

  /// Returns the value of `key`. Throws CheckpointError naming the key if it is missing or has a different type.
  template <class T>
  [[nodiscard]] T get(const std::string& key) const {
    const ConfigNode* node = values.find(key);
    if (node == nullptr) throw CheckpointError("saved state has no \"" + key + "\".");
    T value{};
    Problems problems;
    if (!ValueType<T>::read(*node, value, key, problems)) throw CheckpointError("saved state: " + problems.lines()[0]);
    return value;
  }

  /// Returns the tensor called `name`; throws CheckpointError if there is none.
  [[nodiscard]] const at::Tensor& tensor(const std::string& name) const;

  [[nodiscard]] bool empty() const { return values.entries.empty() && tensors.empty(); }

  /// Puts another part's state under `key`; its tensors become "key.name".
  void put(const std::string& key, const State& part);

  /// Returns the part put under `key`; empty if there is none.
  [[nodiscard]] State part(const std::string& key) const;
};

}  // namespace levin
