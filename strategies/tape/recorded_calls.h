// The operators of one step, in their order, with what they were called with. Internal.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "levin/strategies/tape/operator_forms.h"
#include "levin/strategies/tape/recorded_memory.h"

namespace levin {

/// An operator's argument: a tensor, a list of tensors (undefined ones among them are empty places), or any other
/// value.
using RecordedArgument = std::variant<c10::IValue, TensorPlace, std::vector<TensorPlace>>;

/// How a call is made again.
enum class CallForm {
  as_it_is,  // it writes into its arguments, or into memory of its own that is handed on
  into,      // the results are written into their places by its out form
  copy,      // its first argument is copied into the result's place
  constant,  // the result's place gets the numbers that it had
  message,   // as it is, and waited for where its memory is used; see rank_messages.h
};

struct RecordedCall {
  c10::OperatorHandle op;
  c10::DispatchKeySet keys;
  bool grad_mode = false;
  std::vector<RecordedArgument> arguments = {};
  std::vector<TensorPlace> results = {};  // all tensors of them, lists flattened; undefined ones are empty
  CallForm form = CallForm::as_it_is;
  std::optional<OutForm> out_form = {};  // of CallForm::into
  at::Tensor constant = {};              // of CallForm::constant

  [[nodiscard]] std::string name() const { return op.schema().name(); }
};

struct RecordedCalls {
  std::vector<RecordedCall> calls = {};
  RecordedMemory memory = {};
};

/// What two recordings of the same step differ in, as a clause that continues a sentence ("aten::mul was called with
/// …"); "" if nothing does. Memory from before the step must be the same, or hold the same numbers.
[[nodiscard]] std::string difference(const RecordedCalls& first, const RecordedCalls& second);

}  // namespace levin
