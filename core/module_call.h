// Calls a submodule with hooks: LibTorch's modules have no forward hooks.
//
//   at::Tensor h = levin::call(encoder_, x);      // instead of encoder_->forward(x)
//   auto [y, state] = levin::call(lstm_, x);
//   x = levin::call_chain(blocks_, x, mask);      // x = block->forward(x, mask) for each block
//
// Used by device placement and recomputation: an action is registered for a module object, or for consecutive blocks of
// a chain, and gets their forward pass as a function. Blocks of a torch::nn::Sequential that have an action are called
// through it automatically. Without any action in the process the overhead is one pointer test.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace levin {

using TensorList = std::vector<at::Tensor>;

/// Maps the tensors of a call's arguments, in order, to the tensors of its result. `instead`: a copy of the module, of
/// the same class, to run instead of it; null: the module itself. May be kept and called again later, on any thread, as
/// long as the module lives; it holds none of the call's tensors.
using ModuleForward = std::function<TensorList(const TensorList& inputs, torch::nn::Module* instead)>;

/// The position of a call in a chain of calls, each of which takes only the result of the one before (blocks of a
/// Sequential).
struct ChainPosition {
  bool begins = true;
  bool ends = true;
};

/// A hook around the forward pass of a module. May be called on several threads at once.
class CallAction {
 public:
  virtual ~CallAction() = default;
  /// Runs `forward` on `inputs`, which it may change, and returns the result.
  virtual TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition place) = 0;
};

/// The actions of the process, by module object. Changed between steps only, on one thread.
class CallActions {
 public:
  using List = std::vector<std::shared_ptr<CallAction>>;

  /// Consecutive blocks of a chain of calls that act as one.
  struct Range {
    std::vector<const torch::nn::Module*> blocks;  // at least two
    List actions;                                  // one
  };

  /// Returns whether any module has an action.
  [[nodiscard]] static bool any() { return table_.load(std::memory_order_acquire) != nullptr; }
  /// Returns the actions of one module, or null if there are none.
  [[nodiscard]] static const List* of(const torch::nn::Module* module);
  /// Adds `action` inside the module's other actions.
  static void add(const torch::nn::Module* module, std::shared_ptr<CallAction> action);
  static void remove(const torch::nn::Module* module, const CallAction* action);
  /// Returns the longest range of blocks[first], blocks[first + 1], …, or null if there is none. With `within`, only
  /// shorter ranges count.
  [[nodiscard]] static std::shared_ptr<const Range> range_at(const std::vector<const torch::nn::Module*>& blocks,
                                                             size_t first, const Range* within);
  /// Adds `action` around all of `blocks` together; the actions of single blocks run inside it.
  static void add_range(std::vector<const torch::nn::Module*> blocks, std::shared_ptr<CallAction> action);
  static void remove_range(const CallAction* action);
  /// Runs `forward` within all actions.
  static TensorList run(const List& actions, const ModuleForward& forward, const TensorList& inputs,
                        ChainPosition place = {});

 private:
  struct Table;
  static void change(const std::function<void(Table&)>& edit);
  static std::atomic<const Table*> table_;  // null: no action anywhere
};

namespace detail {

template <class T>
struct IsTuple : std::false_type {};
template <class... Ts>
struct IsTuple<std::tuple<Ts...>> : std::true_type {};

template <class T>
struct IsOptionalTensor : std::is_same<T, std::optional<at::Tensor>> {};

/// Adds the tensors of a value to a list: a tensor (std::optional: undefined if there is none), a vector of them, or a
/// tuple of such.
template <class T>
void take_tensors(const T& value, TensorList& list) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    list.push_back(value);
  } else if constexpr (IsOptionalTensor<T>::value) {
    list.push_back(value.value_or(at::Tensor()));
  } else if constexpr (std::is_same_v<T, TensorList>) {
    list.insert(list.end(), value.begin(), value.end());
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](const auto&... parts) { (take_tensors(parts, list), ...); }, value);
  }
}

/// Replaces the tensors of `value`, in the same order; `next` counts those used.
template <class T>
void put_tensors(T& value, const TensorList& list, size_t& next) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    value = list.at(next++);
  } else if constexpr (IsOptionalTensor<T>::value) {
    const at::Tensor& tensor = list.at(next++);
    if (value) value = tensor;
  } else if constexpr (std::is_same_v<T, TensorList>) {
    for (auto& tensor : value) tensor = list.at(next++);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](auto&... parts) { (put_tensors(parts, list, next), ...); }, value);
  }
}

/// Returns the module that a holder or pointer refers to, or the module itself.
template <class M>
auto& module_of(M& module) {
  if constexpr (requires { module.operator->(); }) return *module.operator->();
  if constexpr (std::is_pointer_v<M>) return *module;
  if constexpr (!std::is_pointer_v<M> && !requires { module.operator->(); }) return module;
}

/// Calls function(instead, args…) within `actions`, as a ModuleForward that owns its data. The tensors of arguments and
/// result pass through the actions.
template <class Function, class... Args>
auto call_within(const CallActions::List& actions, Function function, std::tuple<Args...> given) {
  using Result = std::decay_t<std::invoke_result_t<Function&, torch::nn::Module*, Args&...>>;
  struct Call {
    Function function;
    std::tuple<Args...> args;           // with no tensor in them: an action may keep this
    std::optional<Result> result = {};  // of the forward pass that ran last: its shape, for the tensors that come back
    bool running = true;
  };
  TensorList inputs;
  take_tensors(given, inputs);
  size_t taken = 0;
  put_tensors(given, TensorList(inputs.size()), taken);
  const auto call = std::make_shared<Call>(Call{std::move(function), std::move(given)});
  const ModuleForward forward = [call](const TensorList& tensors, torch::nn::Module* instead) {
    auto args = call->args;
    size_t used = 0;
    put_tensors(args, tensors, used);
    Result computed = std::apply([&](auto&... values) { return call->function(instead, values...); }, args);
    TensorList outputs;
    take_tensors(computed, outputs);
    if (instead == nullptr && call->running) call->result = std::move(computed);
    return outputs;
  };
  struct End {
    Call& call;
    ~End() {
      call.running = false;
      call.result.reset();
    }
  } const end{*call};
  const TensorList outputs = CallActions::run(actions, forward, inputs);
  Result result = std::move(*call->result);
  size_t used = 0;
  put_tensors(result, outputs, used);
  return result;
}

}  // namespace detail

/// module.forward(args…), through the module's actions. `module`: a module, a holder (torch::nn::Linear) or a
/// pointer; it must live until backward is done. The result may be a tensor, a std::vector of tensors, or a tuple of
/// such.
template <class M, class... Args>
auto call(M&& module, Args&&... args) {
  auto& target = detail::module_of(module);
  using Module = std::remove_reference_t<decltype(target)>;
  using Result = std::decay_t<decltype(target.forward(std::forward<Args>(args)...))>;
  const auto* actions = CallActions::any() ? CallActions::of(static_cast<const torch::nn::Module*>(&target)) : nullptr;
  if (actions == nullptr) return Result(target.forward(std::forward<Args>(args)...));
  const auto forward = [own = &target](torch::nn::Module* instead, auto&... values) {
    Module& on = instead == nullptr ? *own : dynamic_cast<Module&>(*instead);
    return Result(on.forward(values...));
  };
  return detail::call_within(*actions, forward, std::tuple<std::decay_t<Args>...>(std::forward<Args>(args)...));
}

namespace detail {

/// x through `blocks`, some of which are grouped. `within`: the range whose blocks these are; null: none.
template <class Module, class X, class... Args>
X call_blocks(const std::vector<Module*>& blocks, const std::shared_ptr<const CallActions::Range>& within, X x,
              const Args&... args) {
  const std::vector<const torch::nn::Module*> keys(blocks.begin(), blocks.end());
  for (size_t k = 0; k < blocks.size();) {
    const auto range = CallActions::range_at(keys, k, within.get());
    if (range == nullptr) {
      x = call(*blocks[k++], x, args...);
      continue;
    }
    const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(k);
    const std::vector<Module*> part(begin, begin + static_cast<std::ptrdiff_t>(range->blocks.size()));
    const auto run = [part, range](torch::nn::Module*, X& value, const Args&... values) {
      return call_blocks(part, range, value, values...);
    };
    x = call_within(range->actions, run, std::tuple<X, Args...>(std::move(x), args...));
    k += part.size();
  }
  return x;
}

}  // namespace detail

/// Calls each block of `blocks` (a container of modules, holders or pointers of one class) as
/// x = levin::call(block, x, args…), and returns the last x. Actions on consecutive blocks (a range of recomputed
/// blocks) work as in a torch::nn::Sequential.
template <class Blocks, class X, class... Args>
auto call_chain(Blocks&& blocks, X&& first, Args&&... args) {
  using Module = std::remove_reference_t<decltype(detail::module_of(*std::begin(blocks)))>;
  using Value = std::decay_t<X>;
  Value x = std::forward<X>(first);
  if (!CallActions::any()) {
    for (auto&& block : blocks) x = detail::module_of(block).forward(x, args...);
    return x;
  }
  std::vector<Module*> list;
  for (auto&& block : blocks) list.push_back(&detail::module_of(block));
  return detail::call_blocks<Module, Value, std::decay_t<Args>...>(list, nullptr, std::move(x), args...);
}

}  // namespace levin
