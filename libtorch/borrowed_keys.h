// Dispatch keys that LibTorch reserves for others, on which Levin registers fallbacks that see operators. Each must be
// above or below autograd, as its user needs, which assertions check, and have no fallback, which register_fallback()
// checks. Internal.
#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <string>

#include "levin/core/options/error.h"
#include "levin/libtorch/version.h"

namespace levin {

/// The key of OperatorObserver, below autograd. LibTorch keeps Fake for libraries outside of PyTorch (torchdistx used
/// it); since 2.13 C++ fake tensors have it too, which Levin does not create.
inline constexpr c10::DispatchKey kBelowAutogradKey = c10::DispatchKey::Fake;
static_assert(kBelowAutogradKey > c10::DispatchKey::Dense && kBelowAutogradKey < c10::DispatchKey::ADInplaceOrView &&
                  kBelowAutogradKey < c10::DispatchKey::AutogradFunctionality,
              "In this LibTorch the dispatch key Fake is not between the devices' kernels and autograd. Choose another "
              "key in libtorch/borrowed_keys.h.");

/// The key of OperatorWatch, above autograd and autocast. LibTorch keeps DeferredInit for libraries outside of PyTorch.
inline constexpr c10::DispatchKey kOperatorWatchKey = c10::DispatchKey::DeferredInit;
static_assert(
    kOperatorWatchKey > c10::DispatchKey::AutogradFunctionality && kOperatorWatchKey > c10::DispatchKey::AutocastCUDA,
    "In this LibTorch the dispatch key DeferredInit is not above autograd and autocast. Choose another key in "
    "libtorch/borrowed_keys.h.");

/// The key of observed weights, above autograd and autocast. LibTorch keeps TESTING_ONLY_GenericWrapper for tests of
/// its dispatcher. It differs from kOperatorWatchKey because both may be active.
inline constexpr c10::DispatchKey kObservedWeightKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;
static_assert(
    kObservedWeightKey > c10::DispatchKey::AutogradFunctionality && kObservedWeightKey > c10::DispatchKey::AutocastCUDA,
    "In this LibTorch the dispatch key TESTING_ONLY_GenericWrapper is not above autograd and autocast. Choose "
    "another key in libtorch/borrowed_keys.h.");

using BoxedKernel = c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys;

/// Registers `kernel` for every operator that is called with `key`, for the lifetime of the result. Throws Error if the
/// process has such a kernel already.
template <BoxedKernel* kernel>
[[nodiscard]] torch::Library register_fallback(c10::DispatchKey key) {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key)) {
    throw Error(std::string("LibTorch's dispatch key ") + c10::toString(key) +
                ", with which Levin sees operators, has a fallback already, from LibTorch " + torch_version() +
                " or from another library in this process. Run Levin in a process without that library; if it is " +
                "LibTorch, choose another key in libtorch/borrowed_keys.h.");
  }
  torch::Library made(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  made.fallback(torch::CppFunction::makeFromBoxedFunction<kernel>());
  return made;
}

}  // namespace levin
