#include "levin/strategies/tape/call_recorder.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "levin/libtorch/generator_state.h"
#include "levin/libtorch/operator_values.h"
#include "levin/strategies/tape/operator_forms.h"
#include "levin/strategies/tape/trial_call.h"

namespace levin {

namespace {

// Whether all results are of the memory of arguments.
bool are_views(const std::vector<c10::IValue>& arguments, const std::vector<c10::IValue>& results) {
  bool are = true;
  for (const c10::IValue& value : results) {
    each_tensor(value, [&](const at::Tensor& result) {
      bool shares = !result.defined();
      for (const c10::IValue& argument : arguments) {
        each_tensor(argument, [&](const at::Tensor& tensor) {
          shares = shares || (tensor.defined() && tensor.is_alias_of(result));
        });
      }
      are = are && shares;
    });
  }
  return are;
}

}  // namespace

void CallRecorder::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) {
  if (!refusal_.empty()) return run_below(op, keys, stack);
  const auto given = torch::jit::last(stack, op.schema().arguments().size());
  const Values arguments(given.begin(), given.end());
  refusal_ = problem_of(op, arguments);
  if (!refusal_.empty()) return run_below(op, keys, stack);
  if (changes_only_shape(op)) return run_below(op, keys, stack);
  if (is_message(op)) return record_message(op, keys, arguments, stack);
  record(op, keys, arguments, stack);
}

std::string CallRecorder::problem_of(const c10::OperatorHandle& op, const Values& values) const {
  std::string problem = is_message(op) ? why_not_resendable(op) : why_not_repeatable(op);
  for (const c10::IValue& value : values) {
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (problem.empty() && tensor.defined()) problem = RecordedMemory::problem_of(tensor);
    });
  }
  return problem.empty() ? "" : op.schema().name() + " " + problem;
}

void CallRecorder::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, const Values& arguments,
                          OperatorStack& stack) {
  const bool looks = depth_ == Depth::forms;
  std::optional<UndeclaredWrites> undeclared;
  std::optional<at::Tensor> random_state;
  if (looks) undeclared.emplace(op, arguments);
  if (looks && is_random(op)) random_state = generator_state(generator_for(arguments));
  run_below(op, keys, stack);
  const auto last = torch::jit::last(stack, op.schema().returns().size());
  const Values results(last.begin(), last.end());
  refusal_ = problem_of(op, results);
  if (!refusal_.empty()) return;
  const auto& schema = op.schema().arguments();
  std::vector<bool> written(schema.size());
  for (size_t k = 0; k < schema.size(); ++k) written[k] = is_written(schema[k]) || (looks && undeclared->changed(k));
  const bool is_pure = std::find(written.begin(), written.end(), true) == written.end();
  if (is_pure && are_views(arguments, results)) return;
  if (is_pure && makes_memory_only(op)) return note_memory(results);

  RecordedCall call{.op = op, .keys = device_keys(keys), .grad_mode = at::GradMode::is_enabled()};
  for (size_t k = 0; k < schema.size(); ++k) call.arguments.push_back(recorded(arguments[k], written[k]));
  for (const c10::IValue& value : results) {
    each_tensor(value, [&](const at::Tensor& tensor) { call.results.push_back(recorded_result(tensor)); });
  }
  if (looks && is_pure) choose_form(call, arguments, results, random_state);
  recorded_.calls.push_back(std::move(call));
}

// All tensors that it gets it also writes.
void CallRecorder::record_message(const c10::OperatorHandle& op, c10::DispatchKeySet keys, const Values& arguments,
                                  OperatorStack& stack) {
  run_below(op, keys, stack);
  RecordedCall call{
      .op = op, .keys = device_keys(keys), .grad_mode = at::GradMode::is_enabled(), .form = CallForm::message};
  for (const c10::IValue& argument : arguments) {
    call.arguments.push_back(recorded(argument, /*is_written=*/holds_tensors(argument)));
  }
  recorded_.calls.push_back(std::move(call));
  if (depth_ != Depth::calls) return;
  wait_for_message(stack.back());
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  received_.push_back(copy_received(arguments[0]));
}

// Its numbers come later: no call is needed to have it again.
void CallRecorder::note_memory(const Values& results) {
  for (const c10::IValue& value : results) {
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) recorded_.memory.make(tensor, recorded_.calls.size());
    });
  }
}

TensorPlace CallRecorder::recorded_result(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return recorded_.memory.write(tensor, recorded_.calls.size(), /*existed=*/false);
}

void CallRecorder::choose_form(RecordedCall& call, const Values& arguments, const Values& results,
                               const std::optional<at::Tensor>& random_state) {
  const bool has_one_result = results.size() == 1 && results[0].isTensor() && results[0].toTensor().defined();
  if (has_one_result && is_constant(call.op)) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    call.form = CallForm::constant;
    call.constant = results[0].toTensor().clone();
  } else if (has_one_result && is_copy(call.op)) {
    call.form = CallForm::copy;
  } else if ((call.out_form = try_out_form(call.op, arguments, results, random_state))) {
    call.form = CallForm::into;
  }
}

RecordedArgument CallRecorder::recorded(const c10::IValue& value, bool is_written) {
  const size_t call = recorded_.calls.size();
  auto place_of = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return TensorPlace();
    return is_written ? recorded_.memory.write(tensor, call, /*existed=*/true) : recorded_.memory.read(tensor, call);
  };
  if (value.isTensor()) return value.toTensor().defined() ? RecordedArgument(place_of(value.toTensor())) : value;
  if (!holds_tensors(value)) return value;
  std::vector<TensorPlace> places;
  each_tensor(value, [&](const at::Tensor& tensor) { places.push_back(place_of(tensor)); });
  return places;
}

}  // namespace levin
