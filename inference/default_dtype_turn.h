// LibTorch's default dtype, the type of floating-point tensors that a step creates, belongs to the process. A model in
// 64-true, bf16-true or 16-true needs it to be its own type while it runs.
//
//   const DefaultDtypeTurn turn(at::kBFloat16);
//
// Threads that want the same type run at the same time. Those that want another one wait until it is their turn.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace levin {

class DefaultDtypeTurn {
 public:
  /// `dtype` unset: the default dtype outside of all turns. Blocks while threads that want a different type run, or
  /// have waited longer. Inside another turn of the same thread the type must be that one's; throws Error otherwise.
  explicit DefaultDtypeTurn(std::optional<at::ScalarType> dtype);
  ~DefaultDtypeTurn();
  DefaultDtypeTurn(const DefaultDtypeTurn&) = delete;
  DefaultDtypeTurn& operator=(const DefaultDtypeTurn&) = delete;
};

}  // namespace levin
