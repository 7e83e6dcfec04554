#include "levin/strategies/tape/operator_forms.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "levin/libtorch/operator_values.h"

namespace levin {

namespace {

bool is_tensor_type(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  if (type.kind() != c10::TypeKind::ListType && type.kind() != c10::TypeKind::OptionalType) return false;
  return type.containedTypeSize() == 1 && is_tensor_type(*type.containedType(0));
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) { return is_tensor_type(*argument.type()); });
}

// aten's operators by name, in all overloads.
const std::vector<c10::OperatorHandle>& overloads(const std::string& name) {
  static const auto known = [] {
    std::unordered_map<std::string, std::vector<c10::OperatorHandle>> made;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& each : dispatcher.getAllOpNames()) {
      if (each.getNamespace() != "aten") continue;
      if (const auto op = dispatcher.findSchema(each)) made[each.name].push_back(*op);
    }
    return made;
  }();
  static const std::vector<c10::OperatorHandle> none;
  const auto found = known.find(name);
  return found == known.end() ? none : found->second;
}

bool is_out(const c10::Argument& argument) {
  return argument.is_out() && is_written(argument) && argument.type()->kind() == c10::TypeKind::TensorType;
}

// The same arguments in the same order, then one tensor for each result.
bool is_out_form_of(const c10::FunctionSchema& out, const c10::FunctionSchema& schema) {
  const auto& given = schema.arguments();
  const auto& taken = out.arguments();
  if (taken.size() != given.size() + schema.returns().size()) return false;
  for (size_t k = 0; k < given.size(); ++k) {
    if (taken[k].name() != given[k].name() || *taken[k].type() != *given[k].type()) return false;
  }
  return std::all_of(taken.begin() + static_cast<std::ptrdiff_t>(given.size()), taken.end(), is_out);
}

bool is_named(const c10::OperatorHandle& op, const std::unordered_set<std::string_view>& names) {
  const std::string& name = op.operator_name().name;
  constexpr std::string_view prefix = "aten::";
  return name.starts_with(prefix) && names.contains(std::string_view(name).substr(prefix.size()));
}

}  // namespace

std::string why_not_repeatable(const c10::OperatorHandle& op) {
  for (const c10::Argument& result : op.schema().returns()) {
    if (!is_tensor_type(*result.type())) return "reads a number of a tensor on the host";
  }
  if (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)) {
    return "has a result whose shape depends on the numbers";
  }
  return "";
}

bool changes_only_shape(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::inplace_view);
}

bool makes_memory_only(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> names = {"empty",          "empty_like", "empty_strided",
                                                             "empty_permuted", "new_empty",  "new_empty_strided"};
  return is_named(op, names);
}

bool is_constant(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> names = {"zeros_like", "ones_like", "full_like",
                                                             "new_zeros",  "new_ones",  "new_full"};
  return !is_random(op) && !op.schema().is_mutable() && (!takes_tensors(op.schema()) || is_named(op, names));
}

bool is_copy(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> names = {"clone", "_to_copy"};
  return is_named(op, names);
}

std::optional<OutForm> find_out_form(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.is_mutable()) return std::nullopt;
  if (is_named(op, {"relu"})) {  // which is computed so
    return OutForm{c10::Dispatcher::singleton().findSchemaOrThrow("aten::clamp_min", "out"), {c10::Scalar(0)}};
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) return std::nullopt;
  }
  for (const c10::OperatorHandle& other : overloads(op.operator_name().name)) {
    if (is_out_form_of(other.schema(), schema) && other.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      return OutForm{other};
    }
  }
  return std::nullopt;
}

}  // namespace levin
