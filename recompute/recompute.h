// Activation recomputation, PyTorch's torch.utils.checkpoint: a part of the forward pass keeps nothing for backward,
// and runs a second time in backward. This trades time for memory: a model of n equal layers in √n segments keeps 2
// √n layers' activations and computes each forward once more (Chen et al. 2016).
//
//   at::Tensor y = levin::recompute([this](at::Tensor x, int64_t heads) { return attend(x, heads); }, x, 8);
//   at::Tensor h = levin::recompute(block_, x, mask);                  // a module: block_->forward(x, mask)
//   at::Tensor z = levin::recompute_sequential(layers_, 32, x);        // a Sequential in 32 segments
//   at::Tensor k = levin::recompute({.keep = levin::Keep::matmul}, block_, x);
//
// A Trainer does it by name, without a change of the model: trainer.recompute (docs/recompute.md).
//
// Gradients equal those without recomputation, on the CPU bitwise: the graph is the same, weights get their
// gradients once, dropout and all other random operators draw the same numbers again, under the same autocast. Segments
// nest. Without a graph (evaluation, NoGradGuard) it is a plain call.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "levin/core/module_call.h"
#include "levin/core/options/error.h"
#include "levin/recompute/segment.h"

namespace levin {

namespace detail {

template <class F, class... Args>
concept IsModuleFor = requires(F& f, Args&... args) {
  module_of(f).forward(args...);
};

/// How a callable is kept until backward: a module by its address (a holder keeps it alive), anything else by copy.
template <class F, class... Args>
auto kept_callable(F& f) {
  if constexpr (IsModuleFor<F, Args...> && (std::is_pointer_v<F> || requires { f.operator->(); })) {
    return [own = std::decay_t<F>(f)](Args&... args) mutable { return module_of(own).forward(args...); };
  } else if constexpr (IsModuleFor<F, Args...>) {
    return [module = &f](Args&... args) { return module->forward(args...); };
  } else {
    return [own = std::decay_t<F>(f)](Args&... args) mutable { return std::invoke(own, args...); };
  }
}

template <class F>
TensorList buffers_of(F& f) {
  if constexpr (requires { module_of(f).buffers(); }) {
    return module_of(f).buffers();
  } else {
    return {};
  }
}

/// function(args…) as a segment. `args` are moved into what is kept, their tensors apart.
template <class Function, class... Args>
auto run_segment(SegmentOptions options, TensorList buffers, Function function, std::tuple<Args...> args) {
  TensorList inputs;
  take_tensors(args, inputs);
  size_t taken = 0;
  auto held = args;
  put_tensors(held, TensorList(inputs.size()), taken);
  const auto again = [function, held](const TensorList& given) mutable {
    auto own = held;
    size_t used = 0;
    put_tensors(own, given, used);
    (void)std::apply(function, own);
  };
  SegmentScope scope(std::move(options), std::move(inputs), std::move(buffers), again);
  auto result = std::apply(function, args);
  scope.finish();
  return result;
}

}  // namespace detail

/// fn(inputs…), computed again in backward. `fn`: a module (its forward is called), a holder of one, or any callable; a
/// lambda is copied, so it must not capture by reference anything that is destroyed before backward, and its other
/// captures are not checked for changes. Inputs: tensors (also in std::vector, std::tuple, std::optional), which are
/// kept until backward, and values of any other type, which are copied. The result may be of any type.
///
/// fn must compute the same when it is called again: from its inputs, its weights and LibTorch's random numbers.
/// Buffers of a module (running statistics) are restored after the second run; those changed by a lambda are not.
/// Throws Error if an input is changed in place, in fn or until backward, and in backward if fn did something else the
/// second time. The part of fn that comes after the last tensor it saves is not run again.
///
/// From the first call on, Levin provides the saved-tensor hooks of LibTorch's engine; not possible in a process that
/// runs Python's torch.
template <class F, class... Inputs>
requires(!std::is_same_v<std::decay_t<F>, SegmentOptions>) auto recompute(F&& fn, Inputs&&... inputs) {
  return recompute(SegmentOptions(), std::forward<F>(fn), std::forward<Inputs>(inputs)...);
}

template <class F, class... Inputs>
auto recompute(SegmentOptions options, F&& fn, Inputs&&... inputs) {
  auto function = detail::kept_callable<std::remove_reference_t<F>, std::decay_t<Inputs>...>(fn);
  std::tuple<std::decay_t<Inputs>...> args(std::forward<Inputs>(inputs)...);
  if (!recomputation_applies()) return std::apply(function, args);
  return detail::run_segment(std::move(options), detail::buffers_of(fn), std::move(function), std::move(args));
}

/// sequential->forward(x) in `segments` parts of equal length, all segments but the last, which has the rest and whose
/// backward follows immediately: torch.utils.checkpoint.checkpoint_sequential. `sequential`: a torch::nn::Sequential of
/// blocks that take a tensor and return one. Throws ConfigError unless 1 <= segments <= its length.
template <class Sequential>
at::Tensor recompute_sequential(Sequential sequential, int64_t segments, at::Tensor x, SegmentOptions options = {}) {
  const auto length = static_cast<int64_t>(sequential->size());
  if (segments < 1 || segments > length) {
    throw ConfigError("recompute_sequential: " + count_of(segments, "segment") + " of a Sequential of " +
                      count_of(length, "block") + ". Give 1 to " + std::to_string(length) + ".");
  }
  auto run = [sequential](int64_t from, int64_t to, at::Tensor value) mutable {
    for (int64_t k = from; k < to; ++k) value = (sequential->begin() + k)->forward(value);
    return value;
  };
  const int64_t size = length / segments;
  const std::string name = options.name;
  for (int64_t k = 0; k + 1 < segments; ++k) {
    if (!recomputation_applies()) break;
    TensorList buffers;
    for (int64_t b = k * size; b < (k + 1) * size; ++b) {
      for (const at::Tensor& buffer : (*sequential)[static_cast<size_t>(b)]->buffers()) buffers.push_back(buffer);
    }
    options.name = name + " of blocks " + std::to_string(k * size) + " to " + std::to_string((k + 1) * size - 1);
    x = detail::run_segment(options, std::move(buffers), run,
                            std::tuple<int64_t, int64_t, at::Tensor>(k * size, (k + 1) * size, std::move(x)));
  }
  return run(recomputation_applies() ? (segments - 1) * size : 0, length, std::move(x));
}

}  // namespace levin
