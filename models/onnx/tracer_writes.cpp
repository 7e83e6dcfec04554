#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "levin/core/error.h"
#include "levin/models/onnx/schema_facts.h"
#include "levin/models/onnx/tracer.h"

namespace levin::onnx {

namespace {

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
