// What an operator's schema tells: whether a tape can call it again, and how its results can be written
// into memory that is there already. Internal.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace levin {

/// Why calling it again would not repeat a step, as the rest of a sentence about it ("reads a number …"); "" if it
/// does.
[[nodiscard]] std::string why_not_repeatable(const c10::OperatorHandle& op);

/// Whether it changes a tensor's sizes and strides in place, and no number.
[[nodiscard]] bool changes_only_shape(const c10::OperatorHandle& op);

/// Whether it makes memory whose numbers nobody has set yet (empty, empty_like, …).
[[nodiscard]] bool makes_memory_only(const c10::OperatorHandle& op);

/// Whether its results depend on nothing but sizes and plain numbers (zeros, full_like, arange, …).
[[nodiscard]] bool is_constant(const c10::OperatorHandle& op);

/// Whether its result holds the numbers of its first argument, in another layout or type.
[[nodiscard]] bool is_copy(const c10::OperatorHandle& op);

/// An operator that writes into tensors it is given what another one returns: its arguments are the other's, then
/// `more`, then the tensors.
struct OutForm {
  c10::OperatorHandle op;
  std::vector<c10::IValue> more = {};
};

/// The overload with the same arguments and out tensors for each result, if the CPU has a kernel of its own for it:
/// LibTorch generates the others, which allocate the result and copy it.
[[nodiscard]] std::optional<OutForm> find_out_form(const c10::OperatorHandle& op);

}  // namespace levin
