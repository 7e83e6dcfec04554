// What a strategy that gives each rank a part of every tensor (fsdp) must know of an optimizer.
#pragma once

namespace levin {

/// Also implemented by optimizers whose update of a number depends on others of its tensor: by a norm, or by a product
/// of matrices.
class WholeTensorUpdate {
 public:
  virtual ~WholeTensorUpdate() = default;
  [[nodiscard]] virtual bool updates_whole_tensors() const { return true; }

 protected:
  WholeTensorUpdate() = default;
  WholeTensorUpdate(const WholeTensorUpdate&) = default;
  WholeTensorUpdate& operator=(const WholeTensorUpdate&) = default;
};

}  // namespace levin
