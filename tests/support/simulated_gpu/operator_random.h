// Random operators draw from the CUDA generator's seed and offset, which a captured graph reads anew at each launch.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <optional>

#include "operator_arguments.h"

namespace simulated {

class Random {
 public:
  /// Takes what an operator's call draws from its generator. Nothing for an operator that draws nothing.
  [[nodiscard]] static Random of(const c10::FunctionSchema& schema, const Stack& arguments);

  /// A generator of the CPU for the call, whenever it is made; none for an operator that draws nothing.
  [[nodiscard]] std::optional<at::Generator> generator() const;
  /// Where an operator's arguments have it.
  [[nodiscard]] std::optional<size_t> argument() const { return argument_; }

 private:
  std::optional<at::PhiloxCudaState> state_ = std::nullopt;
  std::optional<size_t> argument_ = std::nullopt;
};

}  // namespace simulated
