// Who decides what backward keeps of a forward pass: PyTorch's saved-tensor hooks, which LibTorch has for Python only.
// Internal.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace levin {

// Note [Saved-tensor hooks without Python]
// LibTorch asks its autograd engine, by a virtual function, for the hooks of each tensor that an operator saves for
// backward; the plain engine has none, Python's asks Python. The engine here is the plain one with another answer: that
// of the scope that is open on the calling thread. The graph is then as without it, every node and edge, and only the
// tensors in it are kept elsewhere. So parameters get their gradients once, in the same order and to the same bits, and
// whoever waits for them (c10d::Reducer) sees nothing new.

/// Gives the tensors that operators save on this thread their hooks.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// For one tensor that is about to be saved.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make() = 0;
};

/// While it lives, `hooks` (null: none) are asked on the calling thread, instead of those of the scope around it.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHooks* hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  /// Whether hooks are asked on the calling thread.
  [[nodiscard]] static bool active();

 private:
  SavedTensorHooks* outer_;
};

}  // namespace levin
