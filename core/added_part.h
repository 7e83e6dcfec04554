// What is added to a module's layers after it was made, such as LoRA's adapters. LibTorch's layers cannot be cloned
// with it: their clone() refuses submodules that the layer's own reset() does not make. Internal.
#pragma once

namespace torch::nn {
class Module;
}

namespace levin {

/// A submodule that was added to a layer. It and what belongs to it can be taken out of the layer and put back.
class AddedPart {
 public:
  virtual ~AddedPart() = default;
  virtual void take_out() = 0;
  virtual void put_back() = 0;
  /// Adds the same to `copy`, a copy of the layer, with tensors of its own whose values are not set yet.
  virtual void add_to(torch::nn::Module& copy) = 0;
};

}  // namespace levin
