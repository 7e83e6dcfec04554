// Calls a submodule so that what is to happen around it can: LibTorch's modules have no forward hooks.
//
//   at::Tensor h = levin::call(encoder_, x);      // instead of encoder_->forward(x)
//   auto [y, state] = levin::call(lstm_, x);
//
// Placing parts on devices acts through it, as recomputation can: an action is registered for a module object and gets
// its forward pass as a function. Blocks of a torch::nn::Sequential that have an action are called through it by
// themselves. Without any action in the process it costs the test of one pointer.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace levin {

using TensorList = std::vector<at::Tensor>;

/// The tensors of a call's arguments in their order, to the tensors of its result. `instead`: a copy of the module, of
/// the same class, to run in its place; null: the module itself.
using ModuleForward = std::function<TensorList(const TensorList& inputs, torch::nn::Module* instead)>;

/// Where in a chain of calls, each of which takes only what the one before returned (blocks of a Sequential), one is.
struct ChainPlace {
  bool begins = true;
  bool ends = true;
};

/// What is done around the forward pass of a module. May be called on several threads at once.
class CallAction {
 public:
  virtual ~CallAction() = default;
  /// Runs `forward` on `inputs`, or on what it makes of them, and returns its result.
  virtual TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPlace place) = 0;
};

/// The actions of the process, by module object. Changed between steps only, on one thread.
class CallActions {
 public:
  using List = std::vector<std::shared_ptr<CallAction>>;

  /// Whether there is any.
  [[nodiscard]] static bool any() { return table_.load(std::memory_order_acquire) != nullptr; }
  /// Those of one module; null: none.
  [[nodiscard]] static const List* of(const torch::nn::Module* module);
  /// `action` is done within those that the module has.
  static void add(const torch::nn::Module* module, std::shared_ptr<CallAction> action);
  static void remove(const torch::nn::Module* module, const CallAction* action);
  /// Runs `forward` within all actions.
  static TensorList run(const List& actions, const ModuleForward& forward, const TensorList& inputs,
                        ChainPlace place = {});

 private:
  struct Table;
  static std::atomic<const Table*> table_;  // null: no action anywhere
};

namespace detail {

template <class T>
struct IsTuple : std::false_type {};
template <class... Ts>
struct IsTuple<std::tuple<Ts...>> : std::true_type {};

/// Adds the tensors of a result to a list: a tensor, a vector of them, or a tuple of such.
template <class T>
void take_tensors(const T& value, TensorList& list) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    list.push_back(value);
  } else if constexpr (std::is_same_v<T, TensorList>) {
    list.insert(list.end(), value.begin(), value.end());
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](const auto&... parts) { (take_tensors(parts, list), ...); }, value);
  }
}

/// Puts tensors in the place of those of `value`, in the same order; `next` counts those that were used.
template <class T>
void put_tensors(T& value, const TensorList& list, size_t& next) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    value = list.at(next++);
  } else if constexpr (std::is_same_v<T, TensorList>) {
    for (auto& tensor : value) tensor = list.at(next++);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](auto&... parts) { (put_tensors(parts, list, next), ...); }, value);
  }
}

/// The module that a holder or pointer means, or the module itself.
template <class M>
auto& module_of(M& module) {
  if constexpr (requires { module.operator->(); }) return *module.operator->();
  if constexpr (std::is_pointer_v<M>) return *module;
  if constexpr (!std::is_pointer_v<M> && !requires { module.operator->(); }) return module;
}

}  // namespace detail

/// module.forward(args…), by whatever acts around that module. `module`: a module, a holder (torch::nn::Linear) or a
/// pointer. The result may be a tensor, a std::vector of tensors, or a tuple of such.
template <class M, class... Args>
auto call(M&& module, Args&&... args) {
  auto& target = detail::module_of(module);
  using Module = std::remove_reference_t<decltype(target)>;
  using Result = std::decay_t<decltype(target.forward(std::forward<Args>(args)...))>;
  const auto* actions = CallActions::any() ? CallActions::of(static_cast<const torch::nn::Module*>(&target)) : nullptr;
  if (actions == nullptr) return Result(target.forward(std::forward<Args>(args)...));
  auto held = std::make_tuple(std::decay_t<Args>(std::forward<Args>(args))...);
  TensorList inputs;
  detail::take_tensors(held, inputs);
  Result result{};  // of the last forward: its shape, into which the tensors that come back are put
  const ModuleForward forward = [&](const TensorList& given, torch::nn::Module* instead) {
    auto own = held;
    size_t used = 0;
    detail::put_tensors(own, given, used);
    Module& on = instead == nullptr ? target : dynamic_cast<Module&>(*instead);
    Result computed = std::apply([&](auto&... values) { return on.forward(values...); }, own);
    TensorList outputs;
    detail::take_tensors(computed, outputs);
    if (instead == nullptr) result = std::move(computed);
    return outputs;
  };
  const TensorList outputs = CallActions::run(*actions, forward, inputs);
  size_t used = 0;
  detail::put_tensors(result, outputs, used);
  return result;
}

}  // namespace levin
