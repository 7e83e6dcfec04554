#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/operator_values.h"
#include "levin/models/exported/allowed_operators.h"
#include "levin/models/exported/bound_graph.h"
#include "levin/models/exported/json_view.h"

namespace levin::exported {

namespace {

// The type itself if it is not optional, else the type that it holds.
c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
}

using c10::IValue;
using c10::TypeKind;
using As = FilledArgument::As;

// As Python passes a number for a tensor: it does not take part in the promotion of types.
at::Tensor wrapped(const IValue& number) {
  at::Tensor tensor = at::scalar_to_tensor(number.toScalar());
  wrap_number(tensor);
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
    case TypeKind::IntType: return As::ints;
    case TypeKind::FloatType: return As::doubles;
    case TypeKind::BoolType: return As::bools;
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
    FilledArgument filled{position, As::unchanged, value, {}, range_of(wanted)};
    if (type->kind() == TypeKind::TensorType) filled.as = As::tensor;
    if (type->kind() == TypeKind::FloatType) filled.as = As::double_;
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

// Fills `call` with constants, defaults and the positions of values. Returns the problem as a clause that follows the
// operator's name, or "". Devices equal to `exported_on` become the module's.
std::string bind_arguments(const Node& node, const c10::OperatorHandle& op, c10::Device exported_on, BoundCall& call) {
  return ArgumentBinder(node, exported_on, call).bind(op.schema());
}

constexpr std::string_view kOperators = "torch.ops.";
constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";

// These repeat what the example inputs were; a different device or dtype (bf16, autocast) is not a mistake.
bool is_assertion_of_example(const std::string& target) {
  return target == "torch.ops.aten._assert_tensor_metadata.default" ||
         target.starts_with("torch.ops.aten.sym_constrain_range");
}

std::string place_of(const Node& node) {
  return "\"" + cut_text(node.name) + "\"" + (node.source.empty() ? "" : " (" + node.source + ")");
}

// Whether an argument of an operator is a constant that switches its random numbers off.
bool draws_nothing(const BoundCall& call) {
  for (const char* name : {"dropout_p", "train", "training"}) {
    const auto position = call.op->schema().argumentIndexWithName(name);
    if (!position) continue;
    const c10::IValue& given = call.arguments[static_cast<size_t>(*position)];
    if ((given.isDouble() && given.toDouble() == 0) || (given.isBool() && !given.toBool())) return true;
  }
  return false;
}

class Binder {
 public:
  Binder(const BindOptions& options, ModeNotes& notes) : options_(options), notes_(notes) {}

  BoundGraph bind(const Program& program) {
    const Graph& graph = program.graph;
    for (size_t k = 0; k < graph.values.size(); ++k) {
      if (graph.values[k].ends_with("num_batches_tracked")) counters_.insert(k);
    }
    for (size_t k = 0; k < program.inputs.size(); ++k) {
      const bool is_value = graph.inputs[k].kind == Argument::Kind::value;
      if (is_value && program.inputs[k].kind == InputSpec::Kind::buffer)
        buffers_[graph.inputs[k].value] = program.inputs[k].name;
    }
    BoundGraph bound = bind(graph);
    note_returned_buffers(program, bound);
    return bound;
  }

  void throw_if_any() const {
    if (problems_.empty()) return;
    std::string message = options_.path + " needs what Levin does not have:";
    for (const auto& [problem, places] : problems_) {
      message += "\n  " + problem + ", at " + places.first;
      if (places.second > 1) message += " and " + count_of(places.second - 1, "more place");
    }
    throw Error(message);
  }

 private:
  void add_problem(const Node& node, const std::string& problem) {
    auto& [first, count] = problems_[problem];
    if (count++ == 0) first = place_of(node);
  }

  BoundGraph bind(const Graph& graph) {
    BoundGraph bound{.values = graph.values.size(), .inputs = graph.inputs, .outputs = graph.outputs, .calls = {}};
    for (const Node& node : graph.nodes) bound.calls.push_back(bind(graph, node));
    release(bound);
    return bound;
  }

  BoundCall bind(const Graph& graph, const Node& node) {
    BoundCall call;
    call.name = cut_text(node.name) + " (" + cut_text(node.target) + (node.source.empty() ? ")" : "), " + node.source);
    call.modules = node.modules;
    call.outputs = node.outputs;
    if (is_assertion_of_example(node.target)) return call;
    if (node.target.starts_with(kHigherOrder)) {
      bind_higher_order(node, call);
    } else if (node.target.starts_with(kOperators)) {
      bind_operator(node, call);
    } else if (const auto number = number_operator(node.target, node.inputs.size())) {
      bind_number(graph, node, call, number);
    } else {
      add_problem(node,
                  "the function " + cut_text(node.target) + ", which is not an ATen operator: compute it with tensors");
    }
    return call;
  }

  void bind_number(const Graph& graph, const Node& node, BoundCall& call, NumberOperator number) {
    call.kind = BoundCall::Kind::number;
    call.number = number;
    call.results = 1;
    for (const NodeInput& input : node.inputs) {
      const Argument& argument = input.argument;
      const bool is_number = argument.kind == Argument::Kind::value
                                 ? graph.types[argument.value] == ValueType::number
                                 : argument.kind == Argument::Kind::constant && argument.constant.isScalar();
      if (!is_number) return add_problem(node, cut_text(node.target) + " of what is not a number");
      if (argument.kind == Argument::Kind::value) {
        call.filled.push_back({call.arguments.size(), FilledArgument::As::unchanged, argument.value});
      }
      call.arguments.push_back(argument.constant);
    }
    if (node.outputs.size() != 1) add_problem(node, cut_text(node.target) + " with several results");
  }

  void bind_higher_order(const Node& node, BoundCall& call) {
    const std::string name = node.target.substr(kHigherOrder.size());
    const bool is_grad = name == "wrap_with_set_grad_enabled", is_autocast = name == "wrap_with_autocast";
    const size_t before = is_grad ? 1 : 4;
    if (!is_grad && !is_autocast) {
      return add_problem(node, "the higher-order operator " + cut_text(name) +
                                   ": export the model without control flow on tensors (torch.cond, while_loop, scan)");
    }
    const auto& inputs = node.inputs;
    if (inputs.size() <= before || inputs[before].argument.kind != Argument::Kind::graph) {
      return add_problem(node, cut_text(name) + " without its graph");
    }
    const c10::IValue& enabled = inputs[is_grad ? 0 : 2].argument.constant;
    const Graph& inner = *inputs[before].argument.graph;
    if (!enabled.isBool() || inner.inputs.size() != inputs.size() - before - 1) {
      return add_problem(node, cut_text(name) + " with other arguments than its graph takes");
    }
    if (is_autocast && enabled.toBool()) {
      return add_problem(node, "torch.autocast inside the model: remove it and set trainer.precision instead");
    }
    call.kind = BoundCall::Kind::graph;
    call.arguments = {c10::IValue(is_autocast), enabled};
    for (size_t k = before + 1; k < inputs.size(); ++k) {
      FilledArgument filled{call.arguments.size()};
      if (inputs[k].argument.kind == Argument::Kind::list) return add_problem(node, cut_text(name) + " of a list");
      if (inputs[k].argument.kind == Argument::Kind::value) filled.value = inputs[k].argument.value;
      if (inputs[k].argument.kind == Argument::Kind::value) call.filled.push_back(filled);
      call.arguments.push_back(inputs[k].argument.constant);
    }
    const std::set<size_t> outer = std::exchange(counters_, {});
    const std::map<size_t, std::string> outer_buffers = std::exchange(buffers_, {});
    for (const FilledArgument& filled : call.filled) {
      const auto buffer = outer_buffers.find(filled.value);
      const Argument& input = inner.inputs[filled.position - 2];
      if (buffer != outer_buffers.end() && input.kind == Argument::Kind::value) buffers_[input.value] = buffer->second;
    }
    call.graph = std::make_shared<BoundGraph>(bind(inner));
    counters_ = outer;
    buffers_ = outer_buffers;
    call.results = inner.outputs.size();
    if (node.outputs.size() == 1 && node.outputs[0].kind == Argument::Kind::list) call.outputs = node.outputs[0].items;
    if (call.outputs.size() != call.results) add_problem(node, cut_text(name) + " with other results than its graph");
  }

  // "torch.ops.aten.add.Tensor": aten::add, overload Tensor.
  void bind_operator(const Node& node, BoundCall& call) {
    const std::string path = node.target.substr(kOperators.size());
    const size_t first = path.find('.'), last = path.rfind('.');
    const std::string space = path.substr(0, first);
    const auto& spaces = options_.namespaces;
    const bool is_trusted = std::find(spaces.begin(), spaces.end(), space) != spaces.end();
    if (first == std::string::npos || first == last) return add_problem(node, "the target " + cut_text(node.target));
    if (space != "aten" && !is_trusted) {
      return add_problem(node, "the custom operator " + cut_text(path) +
                                   ": write it with PyTorch's own operators, or register it in your program with "
                                   "TORCH_LIBRARY and allow its namespace \"" +
                                   cut_text(space) + "\"");
    }
    const std::string name = space + "::" + path.substr(first + 1, last - first - 1);
    const std::string overload = path.substr(last + 1);
    if (name == "aten::from_file") return add_problem(node, "aten::from_file, which opens files: no program may");
    const auto op = c10::Dispatcher::singleton().findSchema({name, overload == "default" ? "" : overload});
    if (!op) return add_problem(node, "the operator " + cut_text(path) + ", which this LibTorch does not have");
    if (!is_trusted && !is_allowed_operator(op->schema())) {
      return add_problem(node, "the operator " + cut_text(path) +
                                   ", which exported models do not call and which may reach memory outside of its "
                                   "tensors: if you wrote the file yourself, or trust who did, allow it by trust: true "
                                   "(ExportedModule) or operator_namespaces = {\"aten\"} (ExportedProgram)");
    }
    call.op = *op;
    call.memory_check = argument_check(name);
    call.is_uninitialized = name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
    call.kind = name == "aten::sym_size" && overload == "int" ? BoundCall::Kind::size : BoundCall::Kind::op;
    call.results = op->schema().returns().size();
    const std::string problem = bind_arguments(node, *op, options_.exported_on, call) + outputs_problem(call);
    if (!problem.empty()) return add_problem(node, cut_text(path) + " " + problem);
    note_mode(name, call);
    note_differences(name, call);
    note_types(call);
    call.check = layer_check(op->schema());
  }

  static std::string outputs_problem(const BoundCall& call) {
    const auto& returns = call.op->schema().returns();
    if (call.outputs.size() > returns.size() &&
        !(returns.empty() && call.outputs.size() == 1 && call.outputs[0].kind == Argument::Kind::constant)) {
      return "has more results here than it returns";
    }
    for (size_t k = 0; k < std::min(call.outputs.size(), returns.size()); ++k) {
      const bool is_list = returns[k].type()->kind() == c10::TypeKind::ListType;
      const auto kind = call.outputs[k].kind;
      if (kind != Argument::Kind::constant && is_list != (kind == Argument::Kind::list))
        return "has a different kind of result";
    }
    return "";
  }

  void note_mode(const std::string& name, BoundCall& call) {
    if (name == "aten::_native_batch_norm_legit_no_training") ++notes_.fixed_norms;
    const bool is_one_mode = options_.mode == RecordedMode::unknown || options_.mode == RecordedMode::training;
    if (is_one_mode && (name == "aten::add_" || name == "aten::add")) {
      call.counts_batches =
          !call.filled.empty() && call.filled[0].position == 0 && counters_.contains(call.filled[0].value);
    }
    const std::string argument = mode_argument(name);
    const auto position = argument.empty() ? std::nullopt : call.op->schema().argumentIndexWithName(argument);
    if (!position) return;
    const c10::IValue& given = call.arguments[static_cast<size_t>(*position)];
    if (is_norm_without_statistics(name, call) || !(given.isBool() || given.isDouble())) return;
    if (given.isDouble() && given.toDouble() == 0) return;  // attention without dropout, in either mode
    const c10::IValue off = given.isBool() ? c10::IValue(false) : c10::IValue(0.0);
    const c10::IValue on = given.isBool() ? c10::IValue(true) : given;
    switch (options_.mode) {
      case RecordedMode::both: call.mode = {static_cast<size_t>(*position), given, given}; break;
      case RecordedMode::evaluation: call.mode = {static_cast<size_t>(*position), on, given}; break;
      default: call.mode = {static_cast<size_t>(*position), given, off};
    }
    ++notes_.switches;
  }

  // It has the batch's statistics in either mode.
  static bool is_norm_without_statistics(const std::string& name, const BoundCall& call) {
    if (name.find("batch_norm") == std::string::npos && name != "aten::instance_norm") return false;
    const auto mean = call.op->schema().argumentIndexWithName("running_mean");
    if (!mean) return true;
    const auto position = static_cast<size_t>(*mean);
    return call.arguments[position].isNone() &&
           std::none_of(call.filled.begin(), call.filled.end(),
                        [&](const FilledArgument& filled) { return filled.position == position; });
  }

  // What training may do and evaluation not, or the other way round, and no argument says.
  void note_differences(const std::string& name, BoundCall& call) {
    const auto& schema = call.op->schema();
    if (mode_argument(name).empty() && is_random(*call.op) && !draws_nothing(call)) {
      add_difference(call, "draws random numbers");
    }
    for (const FilledArgument& filled : call.filled) {
      const auto buffer = filled.items.empty() ? buffers_.find(filled.value) : buffers_.end();
      const auto* alias = schema.arguments()[filled.position].alias_info();
      if (buffer == buffers_.end() || alias == nullptr) continue;
      const std::string buffer_name = buffer->second;
      if (alias->isWrite() && !call.counts_batches && !call.mode)
        add_difference(call, "changes " + cut_text(buffer_name));
      for (size_t k = 0; k < std::min(call.outputs.size(), schema.returns().size()); ++k) {
        const bool is_view = schema.returns()[k].alias_info() != nullptr;
        if (is_view && call.outputs[k].kind == Argument::Kind::value) buffers_[call.outputs[k].value] = buffer_name;
        for (const Argument& item : call.outputs[k].items) {
          if (is_view && item.kind == Argument::Kind::value) buffers_[item.value] = buffer_name;
        }
      }
    }
  }

  // The same of a program whose buffers are results.
  void note_returned_buffers(const Program& program, BoundGraph& bound) {
    for (size_t k = 0; k < program.outputs.size(); ++k) {
      const OutputSpec& output = program.outputs[k];
      if (output.kind != OutputSpec::Kind::buffer || output.name.ends_with("num_batches_tracked")) continue;
      const size_t value = program.graph.outputs[k].value;
      const auto call = std::find_if(bound.calls.begin(), bound.calls.end(), [&](const BoundCall& each) {
        return std::any_of(each.outputs.begin(), each.outputs.end(), [&](const Argument& result) {
          return result.kind == Argument::Kind::value && result.value == value;
        });
      });
      if (call != bound.calls.end() && !call->mode) add_difference(*call, "changes " + cut_text(output.name));
    }
  }

  void add_difference(BoundCall& call, const std::string& what) {
    if (options_.mode == RecordedMode::evaluation || options_.mode == RecordedMode::both) return;
    if (!std::exchange(call.may_differ, true)) notes_.may_differ.push_back(call.name + " " + what);
  }

  // Constants that Python may have read from a tensor's type: x.dtype, torch.finfo(x.dtype).min.
  void note_types(const BoundCall& call) {
    const auto& arguments = call.op->schema().arguments();
    const double largest = options_.exported_type == c10::kDouble ? 1e300 : 1e38;
    for (size_t k = 0; k < arguments.size(); ++k) {
      const c10::IValue& given = call.arguments[k];
      const bool is_type = without_optional(arguments[k].real_type())->kind() == c10::TypeKind::ScalarTypeType;
      const bool names_type = is_type && given.isInt() && given.toInt() == static_cast<int64_t>(options_.exported_type);
      const bool is_long = given.isDouble() && std::isfinite(given.toDouble()) && std::abs(given.toDouble()) > largest;
      if (!names_type && !is_long) continue;
      notes_.typed.push_back(call.name);
      return;
    }
  }

  // Releases each value after the last call that uses it. Values that the graph's caller holds cost nothing.
  static void release(BoundGraph& graph) {
    std::vector<size_t> last(graph.values, SIZE_MAX);
    const auto use = [&](size_t value, size_t call) { last[value] = call; };
    for (size_t k = 0; k < graph.calls.size(); ++k) {
      const auto define = [&](const Argument& output) {
        if (output.kind == Argument::Kind::value) use(output.value, k);
      };
      for (const Argument& output : graph.calls[k].outputs) {
        define(output);
        for (const Argument& item : output.items) define(item);
      }
      for (const FilledArgument& filled : graph.calls[k].filled) {
        if (filled.items.empty()) use(filled.value, k);
        for (const Argument& item : filled.items) define(item);
      }
    }
    for (const Argument& output : graph.outputs) {
      if (output.kind == Argument::Kind::value) last[output.value] = SIZE_MAX;
      for (const Argument& item : output.items) {
        if (item.kind == Argument::Kind::value) last[item.value] = SIZE_MAX;
      }
    }
    for (size_t value = 0; value < last.size(); ++value) {
      if (last[value] != SIZE_MAX) graph.calls[last[value]].released.push_back(value);
    }
  }

  const BindOptions& options_;
  ModeNotes& notes_;
  std::set<size_t> counters_ = {};                                        // values
  std::map<size_t, std::string> buffers_ = {};                            // by value, views too: the buffer's name
  std::map<std::string, std::pair<std::string, int64_t>> problems_ = {};  // the first place, and how many
};

bool any_trains(const BoundGraph& graph) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [](const BoundCall& call) {
    if (call.graph && any_trains(*call.graph)) return true;
    if (!call.mode) return false;
    const c10::IValue& given = call.mode->when_training;
    return given.isBool() ? given.toBool() : given.toDouble() != 0;
  });
}

}  // namespace

BoundGraph bind_graph(const Program& program, const BindOptions& options, ModeNotes& notes) {
  Binder binder(options, notes);
  BoundGraph bound = binder.bind(program);
  binder.throw_if_any();
  notes.is_eval = options.mode == RecordedMode::unknown && notes.switches > 0 && !any_trains(bound);
  if (!notes.is_eval) return bound;
  notes.may_differ.clear();  // evaluation is what was recorded
  for (BoundCall& call : bound.calls) {
    if (call.mode && call.mode->when_training.isBool()) call.mode->when_training = true;
  }
  return bound;
}

}  // namespace levin::exported
