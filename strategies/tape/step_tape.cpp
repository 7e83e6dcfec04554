#include "levin/strategies/tape/step_tape.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/generator_state.h"
#include "levin/libtorch/operator_values.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/strategies/tape/call_recorder.h"

namespace levin {

namespace {

const c10::OperatorHandle& copy_operator() {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  return op;
}

const c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

bool is_called_itself(const RecordedCall& call) {
  return call.form == CallForm::unchanged || call.form == CallForm::message;
}

bool takes_missing_tensors(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType && type.containedType(0)->kind() == c10::TypeKind::OptionalType;
}

// Whether the result is in memory that no argument has.
bool makes(const RecordedCall& call, const TensorPlace& result) {
  if (result.storage == TensorPlace::kNoStorage) return false;
  return std::none_of(call.arguments.begin(), call.arguments.end(), [&](const RecordedArgument& argument) {
    if (const auto* place = std::get_if<TensorPlace>(&argument)) return place->storage == result.storage;
    const auto* list = std::get_if<std::vector<TensorPlace>>(&argument);
    return list != nullptr && std::any_of(list->begin(), list->end(),
                                          [&](const TensorPlace& place) { return place.storage == result.storage; });
  });
}

}  // namespace

StepTape::StepTape(RecordedCalls recorded, TapeBlock& block)
    : recorded_(std::move(recorded)), memory_(recorded_, block) {
  const auto waits = plan_waits(recorded_);
  std::vector<size_t> message_of(recorded_.calls.size(), kNoMessage);
  auto add_waits = [&](const std::vector<size_t>& calls, std::vector<size_t>& to) {
    for (const size_t call : calls) to.push_back(message_of[call]);
  };
  std::vector<size_t> before_next;  // a constant needs no instruction that could wait
  for (size_t k = 0; k < recorded_.calls.size(); ++k) {
    add_waits(waits[k], before_next);
    const size_t count = instructions_.size();
    add(recorded_.calls[k]);
    if (recorded_.calls[k].form == CallForm::message) {
      message_of[k] = instructions_.back().message = works_.size();
      works_.emplace_back();
    }
    if (instructions_.size() > count) instructions_.back().waits = std::exchange(before_next, {});
    const auto released = memory_.released_after(k);
    if (released.empty()) continue;
    auto& list = instructions_.back().released;
    list.insert(list.end(), released.begin(), released.end());
  }
  add_waits(waits.back(), before_next);
  waits_at_end_ = std::move(before_next);
}

void StepTape::add(const RecordedCall& call) {
  const bool writes_one = call.form == CallForm::constant || call.form == CallForm::copy;
  if (call.form == CallForm::constant && memory_.is_constant(call.results[0].storage)) return;
  const c10::OperatorHandle& op = writes_one ? copy_operator() : call.out_form ? call.out_form->op : call.op;
  Instruction made{.op = op, .keys = is_called_itself(call) ? call.keys : kCpu, .grad_mode = call.grad_mode};
  if (writes_one) {
    const at::Tensor source =
        call.form == CallForm::constant ? call.constant : memory_.tensor(std::get<TensorPlace>(call.arguments[0]));
    made.arguments = {memory_.tensor(call.results[0]), source, /*non_blocking=*/false};
    instructions_.push_back(std::move(made));
    return;
  }
  const auto& schema = call.op.schema().arguments();
  for (size_t k = 0; k < call.arguments.size(); ++k) {
    made.arguments.push_back(value_of(call.arguments[k], schema[k]));
    note_generator(call.arguments[k]);
  }
  if (call.out_form) {
    made.arguments.insert(made.arguments.end(), call.out_form->more.begin(), call.out_form->more.end());
  }
  for (const TensorPlace& place : call.results) {
    if (call.form == CallForm::into) {
      made.arguments.emplace_back(memory_.tensor(place));
    } else if (makes(call, place)) {
      made.handed.push_back({memory_.tensor(place), memory_.storage(place.storage)});
    } else {
      made.handed.emplace_back();
    }
  }
  const bool is_handed =
      std::any_of(made.handed.begin(), made.handed.end(), [](const HandedOver& to) { return to.expected.defined(); });
  if (!is_handed) made.handed.clear();
  instructions_.push_back(std::move(made));
}

c10::IValue StepTape::value_of(const RecordedArgument& argument, const c10::Argument& schema) {
  if (const auto* value = std::get_if<c10::IValue>(&argument)) return *value;
  if (const auto* place = std::get_if<TensorPlace>(&argument)) return memory_.tensor(*place);
  const auto& places = std::get<std::vector<TensorPlace>>(argument);
  if (!takes_missing_tensors(*schema.type())) {
    std::vector<at::Tensor> tensors;
    for (const TensorPlace& place : places) tensors.push_back(memory_.tensor(place));
    return tensors;
  }
  c10::List<std::optional<at::Tensor>> tensors;
  for (const TensorPlace& place : places) {
    const at::Tensor tensor = memory_.tensor(place);
    tensors.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  }
  return tensors;
}

void StepTape::replay() {
  run(/*sends=*/true);
}

void StepTape::replay_beside() {
  run(/*sends=*/false);
  received_.clear();
}

// Without `sends` its messages bring what the step in run_beside() received.
void StepTape::run(bool sends) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::AutoGradMode restored(at::GradMode::is_enabled());
  for (const Instruction& instruction : instructions_) {
    at::GradMode::set_enabled(instruction.grad_mode);
    if (!instruction.waits.empty()) wait_for(instruction.waits);
    if (instruction.message != kNoMessage) {
      sends ? send(instruction) : receive_again(received_.at(instruction.message), instruction.arguments[0]);
      continue;  // its memory is in use until it is waited for, so nothing is released
    }
    stack_.assign(instruction.arguments.begin(), instruction.arguments.end());
    call_kernel(instruction.op, instruction.keys, stack_);
    if (!instruction.handed.empty()) hand_over(instruction);
    for (c10::StorageImpl* storage : instruction.released) set_memory(*storage, at::DataPtr(nullptr, at::kCPU));
  }
  if (!waits_at_end_.empty()) wait_for(waits_at_end_);
  stack_.clear();
}

void StepTape::send(const Instruction& instruction) {
  stack_.assign(instruction.arguments.begin(), instruction.arguments.end());
  call_kernel(instruction.op, instruction.keys, stack_);
  works_[instruction.message] = std::move(stack_.back());
  stack_.clear();
}

void StepTape::wait_for(const std::vector<size_t>& messages) {
  for (const size_t message : messages) {
    const c10::IValue work = std::exchange(works_[message], c10::IValue());
    if (!work.isNone()) wait_for_message(work);
  }
}

void StepTape::hand_over(const Instruction& instruction) {
  size_t index = 0;
  auto take = [&](at::Tensor result) {
    const HandedOver& to = instruction.handed.at(index++);
    if (!to.expected.defined()) return;
    if (result.sizes() != to.expected.sizes() || result.strides() != to.expected.strides() ||
        result.storage_offset() != to.expected.storage_offset()) {
      throw Error("a recorded step: the result of " + instruction.op.schema().name() + " has the shape " +
                  shape_text(result.sizes()) + " and had " + shape_text(to.expected.sizes()) +
                  " when it was recorded. Set record_steps: false.");
    }
    set_memory(*to.storage, exchange_memory(*result.storage().unsafeGetStorageImpl(), at::DataPtr(nullptr, at::kCPU)));
  };
  for (c10::IValue& value : stack_) each_tensor(value, take);
  stack_.clear();
}

void StepTape::note_generator(const RecordedArgument& argument) {
  const auto* value = std::get_if<c10::IValue>(&argument);
  if (value == nullptr || !value->isGenerator()) return;
  const at::Generator generator = value->toGenerator();
  const bool is_default = generator == at::globalContext().defaultGenerator(at::kCPU);
  const bool is_known = std::find(own_generators_.begin(), own_generators_.end(), generator) != own_generators_.end();
  if (!is_default && !is_known) own_generators_.push_back(generator);
}

size_t StepTape::references_to(const at::Tensor& tensor) const {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  size_t count = memory_.references_to(storage);
  for (const RecordedStorage& known : recorded_.memory.storages()) count += known.held.get() == storage ? 1 : 0;
  return count;
}

std::vector<at::Tensor> StepTape::own_random_state() const {
  std::vector<at::Tensor> state;
  for (const at::Generator& generator : own_generators_) state.push_back(generator_state(generator));
  return state;
}

void StepTape::set_own_random_state(const std::vector<at::Tensor>& state) {
  for (size_t k = 0; k < own_generators_.size(); ++k) set_generator_state(own_generators_[k], state[k]);
}

std::string StepTape::run_beside(const std::function<void()>& step) {
  CallRecorder recorder(CallRecorder::Depth::calls);
  step();
  received_ = recorder.take_received();
  if (!recorder.refusal().empty()) return recorder.refusal();
  return difference(recorded_, recorder.take());
}

std::unique_ptr<Recording> TapeRecorder::record(const std::function<void()>& step) {
  RecordedCalls recorded;
  {
    CallRecorder recorder(CallRecorder::Depth::forms);
    step();
    refusal_ = recorder.refusal();
    if (!refusal_.empty()) return nullptr;
    recorded = recorder.take();
  }
  return std::make_unique<StepTape>(std::move(recorded), block_);
}

}  // namespace levin
