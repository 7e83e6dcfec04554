#include "levin/models/exported/bind_argument.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "levin/core/error.h"
#include "levin/models/exported/check_arguments.h"
#include "levin/models/exported/schema_types.h"

namespace levin::exported {

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
}

namespace {

using c10::IValue;
using c10::TypeKind;
using As = FilledArgument::As;

// As Python passes a number for a tensor: it does not take part in the promotion of types.
at::Tensor wrapped(const IValue& number) {
  at::Tensor tensor = at::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// One item stands for as many as the operator has dimensions.
size_t copies_of(size_t given, std::optional<int32_t> count) {
  return given == 1 && count && *count > 1 && *count <= 8 ? static_cast<size_t>(*count) : 1;
}

IValue empty_list(const c10::TypePtr& element) {
  return c10::impl::GenericList(element);
}

// An element of a constant list, or a constant by itself, as the schema has it; nothing if it is not that.
std::optional<IValue> constant_as(const IValue& value, const c10::TypePtr& type) {
  switch (type->kind()) {
    case TypeKind::TensorType:
      if (value.isScalar()) return IValue(wrapped(value));
      return std::nullopt;
    case TypeKind::FloatType:
      if (value.isInt()) return IValue(static_cast<double>(value.toInt()));
      return value.isDouble() ? std::optional(value) : std::nullopt;
    case TypeKind::IntType:
      if (value.isBool()) return IValue(static_cast<int64_t>(value.toBool()));
      return value.isInt() ? std::optional(value) : std::nullopt;
    case TypeKind::BoolType: return value.isBool() ? std::optional(value) : std::nullopt;
    case TypeKind::NumberType: return value.isScalar() ? std::optional(value) : std::nullopt;
    case TypeKind::StringType: return value.isString() ? std::optional(value) : std::nullopt;
    case TypeKind::DeviceObjType: return value.isDevice() ? std::optional(value) : std::nullopt;
    default: return std::nullopt;
  }
}

// Sizes, paddings, …: as many as the operator has dimensions, or one for all.
bool has_right_count(size_t given, const c10::Argument& wanted) {
  const auto& preset = wanted.default_value();
  if (!wanted.N() || *wanted.N() < 2 || given == 1 || given == static_cast<size_t>(*wanted.N())) return true;
  return preset && preset->isList() && preset->toListRef().size() == given;
}

// Dtypes, layouts and memory formats are numbers in a schema, and LibTorch does not check which.
bool is_enumerator(const IValue& value, const c10::Argument& wanted) {
  if (!value.isInt()) return true;
  switch (without_optional(wanted.real_type())->kind()) {
    case TypeKind::ScalarTypeType: return is_dtype(value.toInt());
    case TypeKind::LayoutType: return value.toInt() == static_cast<int64_t>(c10::kStrided);
    case TypeKind::MemoryFormatType: return value.toInt() >= 0 && value.toInt() < 4;
    default: return true;
  }
}

bool is_enumeration(const c10::Argument& wanted) {
  const TypeKind kind = without_optional(wanted.real_type())->kind();
  return kind == TypeKind::ScalarTypeType || kind == TypeKind::LayoutType || kind == TypeKind::MemoryFormatType;
}

bool are_in_range(const IValue& value, const IntegerRange& range) {
  if (value.isInt()) return range.holds(value.toInt());
  if (!value.isIntList()) return true;
  const auto items = value.toIntVector();
  return std::all_of(items.begin(), items.end(), [&](int64_t item) { return range.holds(item); });
}

std::optional<IValue> constant_list_as(const IValue& value, const c10::ListType& type, std::optional<int32_t> count) {
  const c10::TypePtr element = type.getElementType();
  if (!value.isList()) {  // a number for a list of several: kernel_size = 3
    const auto one = constant_as(value, element);
    if (!one || !count || *count < 1 || *count > 8) return std::nullopt;
    c10::impl::GenericList list(element);
    for (int32_t k = 0; k < *count; ++k) list.push_back(*one);
    return IValue(std::move(list));
  }
  c10::impl::GenericList list(element);
  const size_t copies = copies_of(value.toListRef().size(), count);
  for (const IValue& item : value.toListRef()) {
    const auto one = constant_as(item, element);
    if (!one) return std::nullopt;
    for (size_t k = 0; k < copies; ++k) list.push_back(*one);
  }
  return IValue(std::move(list));
}

// Where the values of a list go.
std::optional<As> list_of(const c10::TypePtr& element) {
  switch (element->kind()) {
    case TypeKind::TensorType: return As::tensors;
    case TypeKind::OptionalType: return As::optional_tensors;
    case TypeKind::IntType: return As::wholes;
    case TypeKind::FloatType: return As::reals;
    case TypeKind::BoolType: return As::truths;
    default: return std::nullopt;
  }
}

class ArgumentBinder {
 public:
  ArgumentBinder(const Node& node, c10::Device exported_on, BoundCall& call)
      : node_(node), exported_on_(exported_on), call_(call) {}

  std::string bind(const c10::FunctionSchema& schema) {
    is_aten_ = schema.name().starts_with("aten::");
    const auto& wanted = schema.arguments();
    std::vector<bool> is_given(wanted.size());
    for (const c10::Argument& argument : wanted) call_.arguments.push_back(argument.default_value().value_or(IValue()));
    for (const NodeInput& input : node_.inputs) {
      const auto found = schema.argumentIndexWithName(input.name);
      if (!found) return "has no argument \"" + cut_text(input.name) + "\"";
      const auto position = static_cast<size_t>(*found);
      if (is_given[position]) return "gets \"" + cut_text(input.name) + "\" twice";
      is_given[position] = true;
      if (!put(wanted[position], position, input.argument)) {
        return "does not take what is given for \"" + cut_text(input.name) + "\" (" + wanted[position].type()->str() +
               ")";
      }
    }
    for (size_t k = 0; k < wanted.size(); ++k) {
      const bool may_lack = wanted[k].default_value() || wanted[k].type()->kind() == TypeKind::OptionalType;
      if (!is_given[k] && !may_lack) return "is called without \"" + wanted[k].name() + "\"";
    }
    return "";
  }

 private:
  bool put(const c10::Argument& wanted, size_t position, const Argument& given) {
    const c10::TypePtr type = without_optional(wanted.type());
    const bool is_list = type->kind() == TypeKind::ListType;
    if (given.kind == Argument::Kind::constant) return put_constant(wanted, type, position, given.constant);
    if (given.kind == Argument::Kind::value && !is_list) return put_value(wanted, type, position, given.value);
    if (given.kind != Argument::Kind::list || !is_list) return false;
    const auto as = list_of(type->castRaw<c10::ListType>()->getElementType());
    const bool is_tensors = as == As::tensors || as == As::optional_tensors;
    if (!as || (is_tensors != given.is_tensors && !given.items.empty())) return false;
    for (const Argument& item : given.items) {
      const bool is_none = item.kind == Argument::Kind::constant && item.constant.isNone();
      if (is_none && as != As::optional_tensors) return false;
    }
    if (is_aten_ && !has_right_count(given.items.size(), wanted)) return false;
    if (given.items.empty()) {
      call_.arguments[position] = empty_list(type->castRaw<c10::ListType>()->getElementType());
    } else {
      const size_t copies = copies_of(given.items.size(), wanted.N());
      std::vector<Argument> items = copies > 1 ? std::vector(copies, given.items[0]) : given.items;
      call_.filled.push_back({position, *as, 0, std::move(items), range_of(wanted)});
    }
    return true;
  }

  bool put_constant(const c10::Argument& wanted, const c10::TypePtr& type, size_t position, const IValue& value) {
    if (value.isNone()) {
      call_.arguments[position] = value;
      return wanted.type()->kind() == TypeKind::OptionalType;
    }
    const auto constant = type->kind() == TypeKind::ListType
                              ? constant_list_as(value, *type->castRaw<c10::ListType>(), wanted.N())
                              : constant_as(value, type);
    if (!constant || !is_enumerator(*constant, wanted)) return false;
    if (is_aten_ && constant->isList() && !has_right_count(constant->toListRef().size(), wanted)) return false;
    if (!are_in_range(*constant, range_of(wanted))) return false;
    call_.arguments[position] = *constant;
    if (constant->isDevice() && constant->toDevice() == exported_on_) call_.devices.push_back(position);
    return true;
  }

  bool put_value(const c10::Argument& wanted, const c10::TypePtr& type, size_t position, size_t value) {
    if (is_enumeration(wanted)) return false;
    FilledArgument filled{position, As::it_is, value, {}, range_of(wanted)};
    if (type->kind() == TypeKind::TensorType) filled.as = As::tensor;
    if (type->kind() == TypeKind::FloatType) filled.as = As::real;
    call_.filled.push_back(filled);
    return true;
  }

  [[nodiscard]] IntegerRange range_of(const c10::Argument& wanted) const {
    const c10::TypePtr type = without_optional(wanted.type());
    const bool is_list = type->kind() == TypeKind::ListType;
    const TypeKind kind = is_list ? type->castRaw<c10::ListType>()->getElementType()->kind() : type->kind();
    const bool is_integer = kind == TypeKind::IntType && !is_enumeration(wanted);
    return is_aten_ && is_integer ? integer_range(wanted) : IntegerRange{};
  }

  const Node& node_;
  bool is_aten_ = false;
  c10::Device exported_on_;
  BoundCall& call_;
};

}  // namespace

std::string bind_arguments(const Node& node, const c10::OperatorHandle& op, c10::Device exported_on, BoundCall& call) {
  return ArgumentBinder(node, exported_on, call).bind(op.schema());
}

}  // namespace levin::exported
