// The state of a part of a run: small values as a tree, tensors by name. Checkpoints contain nothing else.
//
//   State state;                                    const double best = saved.get<double>("best");
//   state.set("best", best_);                       exp_avg_ = saved.tensor("exp_avg");
//   state.tensors["exp_avg"] = exp_avg_;
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin {

/// Values and tensors by name. What is read from a checkpoint is not trusted: a name that is missing, or a value of a
/// different type, is a CheckpointError.
struct State {
  ConfigNode values = ConfigNode::map();
  std::map<std::string, at::Tensor> tensors = {};

  /// Sets the value of `key`: bool, int, int64_t, double, text, an enum or a random engine, or an optional, vector,
  /// array, map or variant of these.
  template <class T>
  void set(const std::string& key, const T& value) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      values.set(key, ValueType<std::string>::write(std::string(std::string_view(value))));
    } else {
      check_type<T>();
      values.set(key, ValueType<T>::write(value));
    }
  }

  [[nodiscard]] bool has(const std::string& key) const { return values.find(key) != nullptr; }

  /// Returns the value of `key`. Throws CheckpointError naming the key if it is missing or has a different type.
  template <class T>
  [[nodiscard]] T get(const std::string& key) const {
    check_type<T>();
    const ConfigNode& node = saved(key, std::is_same_v<T, std::string>);
    T value{};
    Problems problems;
    if (!ValueType<T>::read(node, value, key, problems)) throw CheckpointError("saved state: " + problems.lines()[0]);
    return value;
  }

  /// Returns the tensor called `name`; throws CheckpointError if there is none.
  [[nodiscard]] const at::Tensor& tensor(const std::string& name) const;

  [[nodiscard]] bool empty() const { return values.entries.empty() && tensors.empty(); }

  /// Puts another part's state under `key`; its tensors become "key.name".
  void put(const std::string& key, const State& part);

  /// Returns the part put under `key`; empty if there is none.
  [[nodiscard]] State part(const std::string& key) const;

 private:
  template <class T>
  static void check_type() {
    static_assert(
        HasValueType<T>,
        "levin: a State holds bool, int, int64_t, double, std::string, an enum with EnumNames, a random engine "
        "(core/options/random_engine.h), and optional, vector, array, map and variant of these. Convert the "
        "value to one of them, or put a tensor into State::tensors");
  }
  /// Throws CheckpointError with the keys that exist if there is no such key, and, if `as_text`, for a number or a
  /// bool, which an option would take as text.
  [[nodiscard]] const ConfigNode& saved(const std::string& key, bool as_text) const;
};

/// The base of classes with a state in checkpoints: callbacks, loaders, data modules, loggers, optimizers, schedulers,
/// precisions. A subclass overrides state_dict() and load_state_dict(). Their names in version 0.2, state() and
/// load_state(), still work in this version, in calls and in subclasses that override them.
class Stateful {
 public:
  virtual ~Stateful() = default;

  [[nodiscard]] virtual State state_dict() const;
  virtual void load_state_dict(const State& saved);

  [[deprecated("use state_dict()")]] [[nodiscard]] virtual State state() const;
  [[deprecated("use load_state_dict()")]] virtual void load_state(const State& saved);

 protected:
  /// Implement state_dict() and load_state_dict() in a class that is meant as a base, so that subclasses may override
  /// these or the deprecated functions. They call their base's functions of these names.
  [[nodiscard]] virtual State default_state_dict() const { return {}; }
  virtual void load_default_state_dict(const State& /*saved*/) {}
};

}  // namespace levin
