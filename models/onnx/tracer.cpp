#include "levin/models/onnx/tracer.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "levin/core/options/error.h"

namespace levin::onnx {

namespace {

template <size_t N>
bool is_among(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 6> kUnset = {"empty",     "empty_like",        "empty_strided",
                                                    "new_empty", "new_empty_strided", "empty_permuted"};
constexpr std::array<std::string_view, 9> kIgnoring = {"fill",      "zero",      "copy",     "zeros_like", "ones_like",
                                                       "full_like", "new_zeros", "new_ones", "new_full"};
constexpr std::array<std::string_view, 4> kReading = {"_local_scalar_dense", "equal", "is_nonzero", "item"};

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

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

using Kind = TracedArgument::Kind;

// Views that hold all elements in their order: their parts are put back by a reshape.
constexpr std::array<std::string_view, 11> kReshaping = {"view",      "_unsafe_view", "reshape", "_reshape_alias",
                                                         "unsqueeze", "squeeze",      "flatten", "unflatten",
                                                         "alias",     "detach",       "view_as"};

bool reshapes(const std::string& name) {
  return std::find(kReshaping.begin(), kReshaping.end(), name) != kReshaping.end();
}

c10::OperatorHandle find_operator(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

TracedArgument tensor_argument(int64_t value) {
  return {Kind::tensor, {}, {value}};
}

c10::IValue inverse_permutation(const c10::IValue& dims) {
  const std::vector<int64_t> given = dims.toIntVector();
  std::vector<int64_t> inverse(given.size());
  const auto rank = static_cast<int64_t>(given.size());
  for (size_t k = 0; k < given.size(); ++k) {
    inverse[static_cast<size_t>((given[k] + rank) % rank)] = static_cast<int64_t>(k);
  }
  return inverse;
}

// The call that puts `part` into `whole` where `view` took it from; nothing if no operator does.
std::optional<TracedCall> putting_back(const TracedCall& view, int64_t whole, const std::vector<int64_t>& whole_sizes,
                                       int64_t part) {
  if (reshapes(view.name)) {
    TracedCall call{.op = find_operator("aten::reshape", ""), .name = "reshape"};
    call.arguments = {tensor_argument(part), {Kind::plain, whole_sizes}};
    return call;
  }
  if (view.name == "transpose" || view.name == "t" || view.name == "permute") {
    TracedCall call = view;
    call.arguments[0] = tensor_argument(part);
    if (view.name == "permute") call.arguments[1].plain = inverse_permutation(view.arguments[1].plain);
    return call;
  }
  const bool is_slice = view.name == "slice";
  if (!is_slice && view.name != "select") return std::nullopt;
  TracedCall call{.op = is_slice ? find_operator("aten::slice_scatter", "") : find_operator("aten::select_scatter", ""),
                  .name = is_slice ? "slice_scatter" : "select_scatter"};
  call.arguments = {tensor_argument(whole), tensor_argument(part)};
  call.arguments.insert(call.arguments.end(), view.arguments.begin() + 1, view.arguments.end());
  return call;
}

}  // namespace

std::string functional_name(const c10::OperatorHandle& op) {
  std::string name = op.schema().name();
  if (name.starts_with("aten::")) name = name.substr(6);
  const auto& arguments = op.schema().arguments();
  const bool in_place = !arguments.empty() && is_written(arguments[0]);
  if (in_place && name.starts_with("__i")) return "__" + name.substr(3);
  if (in_place && name.ends_with('_') && !name.ends_with("__")) name.pop_back();
  return name;
}

bool is_composite(const c10::OperatorHandle& op) {
  return !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
          op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd));
}

bool leaves_memory_unset(const std::string& name) {
  return is_among(kUnset, name);
}

bool ignores_first(const std::string& name) {
  return is_among(kIgnoring, name);
}

bool reads_number(const std::string& name) {
  return is_among(kReading, name);
}

bool is_out_argument(const c10::OperatorHandle& op, size_t position) {
  const c10::Argument& argument = op.schema().arguments()[position];
  return argument.is_out() && is_written(argument);
}

bool writes_anything(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), is_written);
}

std::vector<at::Tensor> written_tensors(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  std::vector<c10::IValue> written;
  for (size_t k = 0; k < arguments.size(); ++k) {
    if (is_written(op.schema().arguments()[k])) written.push_back(arguments[k]);
  }
  std::vector<at::Tensor> tensors;
  each_tensor(written, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

void each_tensor(const std::vector<c10::IValue>& values, const std::function<void(const at::Tensor&)>& see) {
  for (const c10::IValue& value : values) {
    levin::each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) see(tensor);
    });
  }
}

TracedMemory::Holder* TracedMemory::find(const at::Tensor& tensor) {
  const auto found = holders_.find(tensor.unsafeGetTensorImpl());
  return found == holders_.end() ? nullptr : &found->second.holder;
}

TracedMemory::Holder* TracedMemory::find_same_elements(const at::Tensor& tensor) {
  for (at::TensorImpl* other : sharing(tensor)) {
    Holder& holder = at(other);
    if (tensor.scalar_type() == holder.dtype && tensor.sizes() == at::IntArrayRef(holder.sizes) &&
        tensor.strides() == at::IntArrayRef(holder.strides) && tensor.storage_offset() == holder.offset) {
      return &holder;
    }
  }
  return nullptr;
}

std::vector<at::TensorImpl*> TracedMemory::sharing(const at::Tensor& tensor) const {
  const auto found = storages_.find(storage_of(tensor));
  return found == storages_.end() ? std::vector<at::TensorImpl*>{} : found->second;
}

at::Tensor TracedMemory::tensor(at::TensorImpl* tensor) const {
  return at::Tensor(holders_.at(tensor).tensor.lock());
}

TracedMemory::Holder& TracedMemory::add(const at::Tensor& tensor, int64_t value) {
  Holder holder{.value = value,
                .dtype = tensor.scalar_type(),
                .sizes = tensor.sizes().vec(),
                .strides = tensor.strides().vec(),
                .offset = tensor.storage_offset()};
  if (Holder* known = find(tensor)) return *known = std::move(holder);
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  Holder& added =
      holders_.emplace(impl, Kept{std::move(holder), WeakTensor(tensor.getIntrusivePtr())}).first->second.holder;
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage == nullptr) return added;
  auto& tensors = storages_[storage];
  if (tensors.empty()) kept_storages_.emplace_back(tensor.storage().getWeakStorageImpl());
  tensors.push_back(impl);
  return added;
}

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
  value.is_number = is_wrapped_number(like);
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

// Returns whether the numbers of its results are the same in every run.
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
              " reads a number of a computed tensor, and what C++ does with it cannot be part of a graph. Compute with "
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

// Constants that were kept get memory of their own, and so do the numbers of parameters, which come back at the end.
void Tracer::keep_before_writes(const c10::OperatorHandle& op, const Values& arguments) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const at::Tensor& tensor : written_tensors(op, arguments)) {
    if (!tensor.has_storage()) continue;
    for (at::TensorImpl* sharing : memory_.sharing(tensor)) {
      TracedValue& held = trace_.values[static_cast<size_t>(memory_.at(sharing).value)];
      if (!held.tensor.defined() || !held.tensor.is_alias_of(tensor)) continue;
      const at::Tensor numbers = held.tensor.clone();
      if (held.kind == TracedValue::Kind::parameter) overwritten_.add(held.tensor, numbers);
      held.tensor = numbers;
    }
  }
}

int64_t Tracer::add_call(TracedCall call, const std::vector<int64_t>& results_like, size_t number,
                         const at::Tensor& constant) {
  const bool computed = computes(call), known = gives_numbers(call), weight = known && reads_weights(call);
  call.results.clear();
  for (const int64_t like : results_like) {
    TracedValue made = value(like);
    made.kind = TracedValue::Kind::result;
    made.name.clear();
    made.tensor = at::Tensor();
    made.is_unset = false;
    made.is_computed = computed;
    made.is_weight = false;
    trace_.values.push_back(std::move(made));
    call.results.push_back(static_cast<int64_t>(trace_.values.size()) - 1);
  }
  const int64_t wanted = call.results[number];
  if (known) {
    trace_.values[static_cast<size_t>(wanted)].tensor = constant;
    trace_.values[static_cast<size_t>(wanted)].is_weight = weight;
  }
  trace_.calls.push_back(std::move(call));
  return wanted;
}

int64_t Tracer::replace_part(const TracedMemory::Holder& view, const TracedMemory::Holder& whole, int64_t part) {
  int64_t before = whole.value;
  if (value(before).dtype != value(part).dtype) return kNoValue;  // a view of the bytes
  if (value(before).is_unset) {                                   // any numbers will do
    TracedCall zeros{.op = find_operator("aten::zero", ""), .name = "zero", .arguments = {tensor_argument(before)}};
    before = add_call(std::move(zeros), {before}, 0, {});
  }
  const auto call = putting_back(trace_.calls[view.call], before, whole.sizes, part);
  return call ? add_call(*call, {whole.value}, 0, memory_.tensor(view.parent)) : kNoValue;
}

void Tracer::write(const at::Tensor& tensor, int64_t value, const std::string& writer) {
  TracedMemory::Holder& written = *memory_.find(tensor);
  const bool keeps_geometry = tensor.sizes() == at::IntArrayRef(written.sizes) &&
                              tensor.strides() == at::IntArrayRef(written.strides) &&
                              tensor.storage_offset() == written.offset;
  if (!keeps_geometry) {  // unsqueeze_ and the like write no element
    memory_.add(tensor, value);
    return;
  }
  for (at::TensorImpl* other : memory_.sharing(tensor)) memory_.at(other).is_stale = true;
  written.value = value;
  written.is_stale = false;
  const TracedMemory::Holder* part = &written;
  while (part->parent != nullptr) {
    TracedMemory::Holder& whole = memory_.at(part->parent);
    const int64_t replaced = replace_part(*part, whole, part->value);
    if (replaced == kNoValue) {  // the viewed tensors stay stale
      const std::string write =
          writer + " writes in place into the result of " + c10::toString(trace_.calls[part->call].op.operator_name());
      for (auto* stale = part->parent; stale != nullptr; stale = memory_.at(stale).parent) {
        memory_.at(stale).lost_write = write;
      }
      break;
    }
    whole.value = replaced;
    whole.is_stale = false;
    part = &whole;
  }
}

// What was written through another tensor is taken from there: from the tensor that this one views, or one with the
// same elements.
void Tracer::refresh(const at::Tensor& memory, at::TensorImpl* tensor) {
  TracedMemory::Holder& holder = memory_.at(tensor);
  if (!holder.is_stale) return;
  for (at::TensorImpl* other : memory_.sharing(memory)) {
    const TracedMemory::Holder& same = memory_.at(other);
    if (same.is_stale || same.dtype != holder.dtype || same.sizes != holder.sizes || same.strides != holder.strides ||
        same.offset != holder.offset) {
      continue;
    }
    holder.value = same.value;
    holder.is_stale = false;
    return;
  }
  if (holder.parent == nullptr) {
    throw Error((holder.lost_write.empty() ? "the model writes in place into a view" : holder.lost_write) + ", and " +
                reader_ +
                " reads the viewed memory afterwards, in a way that the graph cannot follow (only select, slice, "
                "transpose and reshapes are). Write it without the last underscore: y = x + 1 for x.add_(1), or "
                "at::cat.");
  }
  refresh(memory, holder.parent);
  TracedCall call = trace_.calls[holder.call];
  call.arguments[0] = tensor_argument(memory_.at(holder.parent).value);
  const std::vector<int64_t> like = call.results;
  holder.value = add_call(std::move(call), like, holder.result, memory_.tensor(tensor));
  holder.call = trace_.calls.size() - 1;
  holder.is_stale = false;
}

}  // namespace levin::onnx
