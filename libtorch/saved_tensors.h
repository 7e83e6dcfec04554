// PyTorch's saved-tensor hooks, which decide what backward keeps of a forward pass; LibTorch has them for Python only.
// Replaces autograd's engine by one that has them. Internal.
#pragma once

#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace levin {

// Note [Saved-tensor hooks without Python]
// LibTorch asks its autograd engine, by a virtual function, for the hooks of each tensor that an operator saves for
// backward; the plain engine has none, Python's engine calls Python. The engine here is the plain one with hooks: those
// of the open scope of the calling thread. The graph has the same nodes and edges as without hooks; only the saved
// tensors are kept elsewhere. So parameters get their gradients once, in the same order and bitwise identical, and
// c10d::Reducer, which waits for them, sees no difference.

/// A tensor that is kept until backward, by the calling thread's hooks if any apply.
using SavedTensor = torch::autograd::SavedVariable;
/// The hooks of one saved tensor.
using PackHooks = torch::autograd::SavedVariableHooks;

/// Provides the hooks for tensors that operators save on this thread.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// For one tensor that is about to be saved.
  virtual std::unique_ptr<PackHooks> make() = 0;
};

/// During its lifetime, `hooks` (null: none) apply on the calling thread, instead of the enclosing scope's hooks.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHooks* hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  /// Whether hooks apply on the calling thread.
  [[nodiscard]] static bool active();

 private:
  SavedTensorHooks* outer_;
};

}  // namespace levin
