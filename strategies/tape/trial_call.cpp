#include "levin/strategies/tape/trial_call.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "levin/libtorch/generator_state.h"
#include "levin/libtorch/operator_values.h"

namespace levin {

namespace {

bool same_bytes(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor left = one.contiguous(), right = other.contiguous();
  return left.nbytes() == right.nbytes() &&
         (left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

// Filled with bytes that no result is likely to hold.
at::Tensor spoilt_like(const at::Tensor& tensor) {
  at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  if (made.storage().nbytes() > 0) std::memset(made.storage().mutable_data(), 0x5a, made.storage().nbytes());
  return made;
}

// A form that resizes its result warns, and is not used.
class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

bool has_memory_of_its_own(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().storage_offset() == 0 &&
         value.toTensor().is_non_overlapping_and_dense();
}

}  // namespace

at::Generator generator_for(const std::vector<c10::IValue>& arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator()) return argument.toGenerator();
  }
  return at::globalContext().defaultGenerator(at::kCPU);
}

UndeclaredWrites::UndeclaredWrites(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments)
    : copies_(arguments.size()) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& schema = op.schema().arguments();
  for (size_t k = 0; k < arguments.size(); ++k) {
    if (is_written(schema[k]) || !arguments[k].isTensor() || !arguments[k].toTensor().defined()) continue;
    copies_[k] = {arguments[k].toTensor(), arguments[k].toTensor().clone()};
  }
}

bool UndeclaredWrites::changed(size_t argument) const {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& copy = copies_[argument];
  return copy && !same_bytes(copy->argument, copy->before);
}

std::optional<OutForm> try_out_form(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                                    const std::vector<c10::IValue>& results,
                                    const std::optional<at::Tensor>& random_state) {
  std::optional<OutForm> out = find_out_form(op);
  if (!out) return std::nullopt;
  for (const c10::IValue& result : results) {
    if (!has_memory_of_its_own(result)) return std::nullopt;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<c10::IValue> stack = arguments;
  stack.insert(stack.end(), out->more.begin(), out->more.end());
  std::vector<at::Tensor> given;
  std::vector<const void*> memory;
  for (const c10::IValue& result : results) {
    given.push_back(spoilt_like(result.toTensor()));
    memory.push_back(given.back().const_data_ptr());
    stack.emplace_back(given.back());
  }
  std::optional<at::Tensor> random_state_after;
  if (random_state) {
    random_state_after = generator_state(generator_for(arguments));
    set_generator_state(generator_for(arguments), *random_state);
  }
  bool ran = true;
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard quiet(&none);
  try {
    call_kernel(out->op, c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  } catch (const c10::Error&) {
    ran = false;  // it takes less than the operator itself
  }
  if (random_state_after) set_generator_state(generator_for(arguments), *random_state_after);
  if (!ran) return std::nullopt;
  for (size_t k = 0; k < results.size(); ++k) {
    const at::Tensor& result = results[k].toTensor();
    if (given[k].const_data_ptr() != memory[k] || given[k].sizes() != result.sizes() ||
        given[k].strides() != result.strides() || !same_bytes(given[k], result)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace levin
