// Finds out by trying what schemas do not say. All run on the calling thread, below autograd, unseen by observers.
// Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "levin/strategies/tape/operator_forms.h"

namespace levin {

/// The generator among `arguments` that an operator draws from, else the CPU's default one.
[[nodiscard]] at::Generator generator_for(const std::vector<c10::IValue>& arguments);

/// Which arguments an operator changed although its schema does not list them as changed: native_batch_norm moves its
/// running statistics. Constructed before the call with copies of the arguments.
class UndeclaredWrites {
 public:
  UndeclaredWrites(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  [[nodiscard]] bool changed(size_t argument) const;

 private:
  struct Copy {
    at::Tensor argument, before;
  };
  std::vector<std::optional<Copy>> copies_;
};

/// The out form that writes results bitwise identical to `results` into tensors like them; nullopt if there is none.
/// Calls it once, starting from `random_state` if the operator draws.
[[nodiscard]] std::optional<OutForm> try_out_form(const c10::OperatorHandle& op,
                                                  const std::vector<c10::IValue>& arguments,
                                                  const std::vector<c10::IValue>& results,
                                                  const std::optional<at::Tensor>& random_state);

}  // namespace levin
