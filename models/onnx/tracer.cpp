#include "levin/models/onnx/tracer.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "levin/core/error.h"
#include "levin/models/onnx/schema_facts.h"

namespace levin::onnx {

namespace {

// What new memory is filled with, so that C++ code that fills it without an operator (at::tensor) is noticed.
constexpr int kUnsetByte = 0xa5;

std::span<uint8_t> memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.device() != at::kCPU) return {};
  return {static_cast<uint8_t*>(tensor.storage().mutable_data()), tensor.storage().nbytes()};
}

void mark_unset(const at::Tensor& tensor) {
  const auto bytes = memory_of(tensor);
  if (!bytes.empty()) std::memset(bytes.data(), kUnsetByte, bytes.size());
}

bool is_still_unset(const at::Tensor& tensor) {
  const auto bytes = memory_of(tensor);
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == kUnsetByte; });
}

}  // namespace

OverwrittenParameters::~OverwrittenParameters() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (auto item = before_.rbegin(); item != before_.rend(); ++item) item->first.copy_(item->second);
}

bool OverwrittenParameters::holds(const at::Tensor& tensor) const {
  return std::any_of(before_.begin(), before_.end(), [&](const auto& item) { return item.first.is_alias_of(tensor); });
}

Tracer::Tracer(const NamedTensors& parameters, OverwrittenParameters& overwritten,
               std::function<bool(const std::string&)> is_whole, bool keeps_weights)
    : is_whole_(std::move(is_whole)), keeps_weights_(keeps_weights), overwritten_(overwritten) {
  for (const auto& [name, tensor] : parameters) {
    if (memory_.find(tensor) != nullptr) continue;  // tied
    const TracedValue value{.kind = TracedValue::Kind::parameter, .name = name, .tensor = tensor, .is_weight = true};
    memory_.add(tensor, add_value(value, tensor));
  }
}

int64_t Tracer::add_value(TracedValue value, const at::Tensor& like) {
  value.dtype = like.scalar_type();
  value.sizes = like.sizes().vec();
  value.is_number = like.unsafeGetTensorImpl()->is_wrapped_number();
  trace_.values.push_back(std::move(value));
  return static_cast<int64_t>(trace_.values.size()) - 1;
}

void Tracer::add_input(const std::string& name, const at::Tensor& tensor) {
  const TracedValue value{.kind = TracedValue::Kind::input, .name = name, .is_computed = true};
  trace_.inputs.push_back(add_value(value, tensor));
  memory_.add(tensor, trace_.inputs.back());
}

int64_t Tracer::value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return kNoValue;
  TracedMemory::Holder* holder = memory_.find(tensor);
  if (holder == nullptr) return value_of_unknown(tensor);
  refresh(tensor, tensor.unsafeGetTensorImpl());
  note_filling(tensor, trace_.values[static_cast<size_t>(holder->value)]);
  return holder->value;
}

// Numbers that C++ wrote into new memory are a constant, if they are the same in all traces.
void Tracer::note_filling(const at::Tensor& tensor, TracedValue& value) {
  if (!value.is_unset || is_still_unset(tensor)) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  value.tensor = tensor.clone();
  value.is_unset = false;
}

// Tensors come without an operator from plain numbers, from detach() and data(), and from before the trace.
int64_t Tracer::value_of_unknown(const at::Tensor& tensor) {
  if (TracedMemory::Holder* same = memory_.find_same_elements(tensor)) {
    TracedMemory::Holder& added = memory_.add(tensor, same->value);
    added = *same;  // also if it is stale
    refresh(tensor, tensor.unsafeGetTensorImpl());
    return added.value;
  }
  for (at::TensorImpl* other : memory_.sharing(tensor)) {
    if (!trace_.values[static_cast<size_t>(memory_.at(other).value)].is_computed) continue;
    throw Error(reader_ +
                " reads a tensor with which the model reaches the memory of a computed one without an operator "
                "(from_blob, set_data or a pointer), which cannot be exported. Use an operator (view, slice, clone).");
  }
  const int64_t value = add_value({.kind = TracedValue::Kind::constant, .tensor = tensor}, tensor);
  memory_.add(tensor, value);
  return value;
}

TracedCall Tracer::call_of(const c10::OperatorHandle& op, const Values& arguments) {
  TracedCall call{.op = op, .name = functional_name(op)};
  for (const c10::IValue& argument : arguments) {
    TracedArgument traced;
    if (argument.isTensor()) {
      traced = {TracedArgument::Kind::tensor, {}, {value_of(argument.toTensor())}};
    } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
      traced.kind = TracedArgument::Kind::tensors;
      for (const c10::IValue& item : argument.toList()) {
        traced.values.push_back(item.isTensor() ? value_of(item.toTensor()) : kNoValue);
      }
    } else {
      traced.plain = argument;
    }
    call.arguments.push_back(std::move(traced));
  }
  return call;
}

void Tracer::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) {
  const auto given = torch::jit::last(stack, op.schema().arguments().size());
  const Values arguments(given.begin(), given.end());
  reader_ = c10::toString(op.operator_name());
  TracedCall call = call_of(op, arguments);
  const bool opens = is_composite(op) && !is_whole_(call.name);
  if (opens) {
    run_inside(op, keys, stack);
  } else {
    keep_before_writes(op, arguments);
    run_below(op, keys, stack);
  }
  const auto last = torch::jit::last(stack, op.schema().returns().size());
  const Values results(last.begin(), last.end());
  bool is_known = true;
  each_tensor(results, [&](const at::Tensor& tensor) { is_known = is_known && memory_.find(tensor) != nullptr; });
  if (reads_number(call.name)) check_number(call, results);
  if (opens && is_known) return;
  if (is_known && !writes_anything(op)) return;  // it gave back what it got
  record(std::move(call), arguments, results);
}

// Whether the numbers of its results are those of any run.
bool Tracer::gives_numbers(const TracedCall& call) const {
  if (is_random(call.op) || leaves_memory_unset(call.name)) return false;
  bool known = keeps_weights_ || !reads_weights(call);
  each_read_value(call, [&](int64_t id) { known = known && value(id).tensor.defined(); });
  return known;
}

bool Tracer::reads_weights(const TracedCall& call) const {
  bool reads = false;
  each_read_value(call, [&](int64_t id) { reads = reads || value(id).is_weight; });
  return reads;
}

bool Tracer::computes(const TracedCall& call) const {
  bool is_computed = false;
  each_read_value(call, [&](int64_t id) { is_computed = is_computed || value(id).is_computed; });
  return is_computed;
}

// Two tensors that differ in an example are taken to differ always, and a tensor to equal itself.
void Tracer::check_number(const TracedCall& call, const Values& results) const {
  if (!computes(call)) return;
  const bool compares = call.name == "equal" && results.at(0).isBool();
  if (compares && (!results[0].toBool() || call.arguments[0].values == call.arguments[1].values)) return;
  throw Error("aten::" + call.name +
              " reads a number of a computed tensor, and what C++ does with it is no part of a graph. Compute with "
              "tensors instead (at::where for a condition), or export another method.");
}

void Tracer::record(TracedCall call, const Values& arguments, const Values& results) {
  std::vector<at::Tensor> made;
  each_tensor(results, [&](const at::Tensor& tensor) { made.push_back(tensor); });
  const std::vector<at::Tensor> written = written_tensors(call.op, arguments);
  const auto is_in = [](const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& one) { return one.is_same(tensor); });
  };
  for (const at::Tensor& tensor : written) {
    if (!is_in(made, tensor)) made.push_back(tensor);
  }
  const bool known = gives_numbers(call), weight = known && reads_weights(call), computed = computes(call),
             unset = leaves_memory_unset(call.name);
  for (const at::Tensor& tensor : made) {
    if (unset) mark_unset(tensor);
    const TracedValue value{
        .tensor = known ? tensor : at::Tensor(), .is_computed = computed, .is_weight = weight, .is_unset = unset};
    call.results.push_back(add_value(value, tensor));
  }
  const size_t index = trace_.calls.size();
  const std::vector<int64_t> values = call.results;
  const c10::OperatorHandle op = call.op;
  trace_.calls.push_back(std::move(call));
  for (size_t k = 0; k < made.size(); ++k) {
    if (memory_.find(made[k]) != nullptr && is_in(written, made[k])) {
      write(made[k], values[k], c10::toString(op.operator_name()));
    } else {
      memory_.add(made[k], values[k]);
      note_view(made[k], index, k, arguments);
    }
  }
}

// A result in the memory of the first argument is a view of it.
void Tracer::note_view(const at::Tensor& result, size_t call, size_t number, const Values& arguments) {
  if (arguments.empty() || !arguments[0].isTensor() || !arguments[0].toTensor().defined()) return;
  const at::Tensor& viewed = arguments[0].toTensor();
  if (viewed.is_same(result) || !viewed.has_storage() || !viewed.is_alias_of(result)) return;
  TracedMemory::Holder& holder = *memory_.find(result);
  holder.parent = viewed.unsafeGetTensorImpl();
  holder.call = call;
  holder.result = number;
}

Trace Tracer::take(const std::vector<at::Tensor>& outputs) {
  reader_ = "an output";
  for (const at::Tensor& output : outputs) trace_.outputs.push_back(value_of(output));
  return std::move(trace_);
}

}  // namespace levin::onnx
