#include "levin/models/onnx/operators.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/operator_values.h"
#include "levin/models/onnx/tracer.h"

namespace levin::onnx {

namespace {

// A tensor that counts in type promotion as the value does.
at::Tensor stand_in(const ProgramValue& value) {
  const std::vector<int64_t> sizes(value.sizes.empty() ? 0 : 1, 0);
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(value.dtype));
  if (value.is_number) wrap_number(tensor);
  return tensor;
}

int64_t wrapped(int64_t dim, int64_t rank) {
  const int64_t dims = std::max<int64_t>(rank, 1);
  return dim < 0 ? dim + dims : dim;
}

class GraphMaker final : public ValueNames {
 public:
  GraphMaker(const Program& program, int64_t opset)
      : program_(program), graph_(opset), names_(program.values.size()), needed_(program.values.size(), false) {}

  Graph make(const PortNames& names) {
    const std::vector<size_t> calls = needed_calls();
    add_inputs(names.inputs);
    for (const size_t k : calls) translate(program_.calls[k]);
    throw_if_any();
    for (size_t k = 0; k < program_.outputs.size(); ++k) add_output(program_.outputs[k], names.outputs.at(k));
    return graph_.take();
  }

  std::string name_of(int64_t id) override {
    if (id == kNoValue) throw NotTranslated("with an undefined tensor");
    std::string& name = names_[static_cast<size_t>(id)];
    if (!name.empty()) return name;
    const ProgramValue& value = value_of(id);
    if (value.number) return name = graph_.cast(graph_.batch_number(*value.number), value.dtype);
    if (!value.tensor.defined()) throw NotTranslated("with " + origin_of(id));
    return name = value.name.empty() ? graph_.constant(value.tensor) : graph_.add_initializer(value.name, value.tensor);
  }

  void set_name(int64_t id, const std::string& name) override { names_[static_cast<size_t>(id)] = name; }

 private:
  struct Failure {
    int64_t count = 0;
    std::string after = "";  // the parameter used last before the first
  };

  [[nodiscard]] const ProgramValue& value_of(int64_t id) const { return program_.values[static_cast<size_t>(id)]; }

  // Returns the calls on which an output depends and whose results are not constants, in the order of the calls. What
  // an operator without a translation computes from weights becomes a constant.
  std::vector<size_t> needed_calls() {
    for (const int64_t output : program_.outputs) {
      if (output != kNoValue) needed_[static_cast<size_t>(output)] = true;
    }
    std::vector<size_t> calls;
    for (size_t k = program_.calls.size(); k-- > 0;) {
      const ProgramCall& call = program_.calls[k];
      const bool has_translation = translations().contains(call.name);
      const bool is_needed = std::any_of(call.results.begin(), call.results.end(), [&](int64_t id) {
        const ProgramValue& value = value_of(id);
        const bool is_constant = value.tensor.defined() && !(value.is_weight && has_translation);
        return needed_[static_cast<size_t>(id)] && !is_constant;
      });
      if (!is_needed) continue;
      calls.push_back(k);
      each_read_value(call, [&](int64_t id) { needed_[static_cast<size_t>(id)] = true; });
    }
    std::reverse(calls.begin(), calls.end());
    return calls;
  }

  void add_inputs(const std::vector<std::string>& names) {
    const size_t count = program_.inputs.size();
    std::vector<size_t> used;
    std::string used_names;
    for (size_t k = 0; k < count; ++k) {
      if (!needed_[static_cast<size_t>(program_.inputs[k])]) continue;
      used.push_back(k);
      used_names += (used_names.empty() ? "" : ", ") + value_of(program_.inputs[k]).name;
    }
    if (used.empty()) throw Error("the model's output depends on none of its inputs.");
    if (!names.empty() && names.size() != count && names.size() != used.size()) {
      throw ConfigError("OnnxOptions.input_names (--input_names): got " +
                        count_of(static_cast<int64_t>(names.size()), "name") + " for " +
                        count_of(static_cast<int64_t>(used.size()), "input") + " (" + used_names + ").");
    }
    for (size_t k = 0; k < used.size(); ++k) {
      const int64_t id = program_.inputs[used[k]];
      const ProgramValue& value = value_of(id);
      const std::string name = names.empty() ? value.name : names[names.size() == count ? used[k] : k];
      set_name(id, graph_.add_input({name, value.dtype, value.sizes}));
    }
  }

  void add_output(int64_t id, const std::string& name) {
    try {
      const std::string result = name_of(id);
      const ProgramValue& value = value_of(id);
      (void)onnx_type(value.dtype);
      graph_.add_output({name, value.dtype, value.sizes}, result);
    } catch (const NotTranslated& reason) {
      throw Error("output \"" + name + "\" cannot be exported " + reason.what() +
                  ". Let the model return another tensor, or export another method.");
    }
  }

  // Where a value without numbers or a name comes from, as a noun.
  [[nodiscard]] std::string origin_of(int64_t id) const {
    for (const ProgramCall& call : program_.calls) {
      const auto at = std::find(call.results.begin(), call.results.end(), id);
      if (at == call.results.end()) continue;
      return "result " + std::to_string(at - call.results.begin() + 1) + " of " +
             c10::toString(call.op.operator_name()) + ", which has no translation";
    }
    return "a tensor that C++ makes without operators, another one for each size of the inputs";
  }

  void translate(const ProgramCall& call) {
    if (has_failed_argument(call)) return give_up(call);
    try {
      check_types(call);
      const bool is_unset = leaves_memory_unset(call.name) && value_of(call.results.at(0)).is_unset;
      const auto found = translations().find(is_unset ? "zeros" : call.name);  // any numbers will do
      if (found == translations().end()) throw NotTranslated(why_unknown(call));
      OperatorCall translated(program_, call, *this, graph_);
      found->second(translated);
      check_sizes(call);
    } catch (const NotTranslated& reason) {
      fail(call, reason.what());
    } catch (const std::out_of_range&) {  // a dimension that a translation expects
      fail(call, "of tensors with these sizes");
    }
    for (const ProgramArgument& argument : call.arguments) {
      for (const int64_t id : argument.values) {
        if (id != kNoValue && value_of(id).kind == TracedValue::Kind::parameter) last_parameter_ = value_of(id).name;
      }
    }
  }

  // An operator before this one is to blame for its sizes.
  [[nodiscard]] bool has_failed_argument(const ProgramCall& call) const {
    bool has_failed = false;
    each_read_value(call, [&](int64_t id) {
      has_failed = has_failed || (value_of(id).kind == TracedValue::Kind::result && !value_of(id).problem.empty());
    });
    return has_failed;
  }

  void check_types(const ProgramCall& call) const {
    const auto check = [&](int64_t id) { (void)onnx_type(value_of(id).dtype); };
    std::for_each(call.results.begin(), call.results.end(), check);
    each_read_value(call, check);
  }

  void check_sizes(const ProgramCall& call) const {
    const auto check = [&](int64_t id, const char* what) {
      if (!value_of(id).problem.empty()) throw NotTranslated(what + value_of(id).problem);
    };
    for (const int64_t id : call.results) check(id, "its result ");
    each_read_value(call, [&](int64_t id) { check(id, "a tensor that it reads "); });
  }

  static std::string why_unknown(const ProgramCall& call) {
    if (is_random(call.op)) return "it draws random numbers; put the model into evaluation mode (eval())";
    if (leaves_memory_unset(call.name)) return "C++ fills its memory without operators, differently for each size";
    return "no translation";
  }

  // Others that use the results are translated as if there were some, so that all failures are found at once.
  void give_up(const ProgramCall& call) {
    for (const int64_t id : call.results) {
      if (names_[static_cast<size_t>(id)].empty()) set_name(id, "untranslated");
    }
  }

  // What is computed of weights has its numbers anyway.
  void fail(const ProgramCall& call, const std::string& reason) {
    const bool has_numbers = std::all_of(call.results.begin(), call.results.end(),
                                         [&](int64_t id) { return value_of(id).tensor.defined(); });
    if (has_numbers) return;
    give_up(call);
    Failure& failure = failures_[c10::toString(call.op.operator_name()) + "\n" + reason];
    if (failure.count++ == 0) failure.after = last_parameter_;
  }

  void throw_if_any() const {
    if (failures_.empty()) return;
    std::string text = "the model calls operators that cannot be exported:";
    for (const auto& [what, failure] : failures_) {
      const size_t end = what.find('\n');
      text += "\n  " + what.substr(0, end) + " (" + count_of(failure.count, "time") +
              (failure.after.empty() ? "" : ", first after " + failure.after) + "): " + what.substr(end + 1) + ".";
    }
    throw Error(text +
                "\nWrite these parts with other operators (docs/export.md lists those there are), export fixed sizes "
                "(--fixed_batch, no --dynamic_length) where a size is the reason, or export another method.");
  }

  const Program& program_;
  GraphBuilder graph_;
  std::vector<std::string> names_;
  std::vector<bool> needed_;
  std::map<std::string, Failure> failures_ = {};
  std::string last_parameter_ = "";
};

}  // namespace

OperatorCall::OperatorCall(const Program& program, const ProgramCall& call, ValueNames& names, GraphBuilder& graph)
    : program_(program), call_(call), names_(names), graph_(graph) {
  if (find("dim") == nullptr) return;
  for (const char* argument : {"self", "index", "src", "source"}) {
    if (!is_tensor(argument) || rank(argument) != 0) continue;
    const int64_t id = find(argument)->values.at(0);
    ProgramValue lifted = value(id);
    lifted.sizes = {{0, 1}};
    lifted_.emplace(id, std::move(lifted));
  }
}

const ProgramArgument* OperatorCall::find(std::string_view argument) const {
  const auto& schema = call_.op.schema().arguments();
  for (size_t k = 0; k < schema.size() && k < call_.arguments.size(); ++k) {
    if (schema[k].name() == argument) return &call_.arguments[k];
  }
  const std::string_view other_name = argument == "input" ? "self" : argument == "self" ? "input" : "";
  const bool is_first = !schema.empty() && !call_.arguments.empty() && schema[0].name() == other_name;
  return is_first ? &call_.arguments[0] : nullptr;
}

const ProgramArgument& OperatorCall::plain(std::string_view argument) const {
  const ProgramArgument* found = find(argument);
  if (found == nullptr) throw NotTranslated("this overload has no argument " + std::string(argument));
  if (found->differs)
    throw NotTranslated("its " + std::string(argument) + " is not in proportion to the inputs' sizes");
  return *found;
}

bool OperatorCall::has(std::string_view argument) const {
  const ProgramArgument* found = find(argument);
  if (found == nullptr) return false;
  if (found->kind == TracedArgument::Kind::plain) return !found->plain.isNone();
  return found->kind == TracedArgument::Kind::tensors || found->values.at(0) != kNoValue;
}

bool OperatorCall::is_tensor(std::string_view argument) const {
  const ProgramArgument* found = find(argument);
  return found != nullptr && found->kind == TracedArgument::Kind::tensor && found->values.at(0) != kNoValue;
}

const ProgramValue& OperatorCall::value(int64_t id) const {
  const auto lifted = lifted_.find(id);
  if (lifted != lifted_.end()) return lifted->second;
  return program_.values.at(static_cast<size_t>(id));
}

const ProgramValue& OperatorCall::value(std::string_view argument) const {
  if (!is_tensor(argument)) throw NotTranslated("it has no tensor " + std::string(argument));
  return value(find(argument)->values.at(0));
}

const at::Tensor& OperatorCall::numbers_of(int64_t id) const {
  if (value(id).tensor.defined()) return value(id).tensor;
  throw NotTranslated("its weights must be parameters or constants");
}

std::string OperatorCall::in(std::string_view argument) {
  (void)value(argument);
  return in(find(argument)->values.at(0));
}

std::string OperatorCall::in(int64_t id) {
  const std::string name = names_.name_of(id);
  return lifted_.contains(id) ? graph_.add("Unsqueeze", {name, graph_.numbers({0})}) : name;
}

void OperatorCall::give(const std::string& name, size_t number) {
  names_.set_name(call_.results.at(number), lifted_.empty() ? name : reshaped(name, result(number).sizes));
}

std::string OperatorCall::in(std::string_view argument, at::ScalarType dtype) {
  if (!is_tensor(argument)) {
    const ProgramArgument& number = plain(argument);
    if (number.numbers.size() == 1 && !number.numbers[0].is_fixed()) {
      return cast_from(graph_.batch_number(number.numbers[0]), at::kLong, dtype);
    }
    if (number.plain.isInt()) return graph_.whole_number(number.plain.toInt(), dtype);
    if (number.plain.isBool()) return graph_.whole_number(number.plain.toBool() ? 1 : 0, dtype);
    return graph_.number(real(argument), dtype);
  }
  const ProgramValue& given = value(argument);
  if (given.tensor.defined() && !given.is_weight && given.sizes.empty()) {
    return graph_.constant(given.tensor.to(dtype));  // "x * 2" has no 2 to cast
  }
  return cast_from(in(argument), given.dtype, dtype);
}

int64_t OperatorCall::fixed_size(std::string_view argument, int64_t dim) const {
  const BatchNumber size = value(argument).sizes.at(static_cast<size_t>(dim));
  if (!size.is_fixed()) throw NotTranslated("along a size that varies (" + size.text() + ")");
  return size.rest;
}

void OperatorCall::check_batched(std::string_view images, size_t dims) const {
  if (rank(images) != static_cast<int64_t>(dims) + 2) throw NotTranslated("only of batches (N, C, …)");
}

std::vector<int64_t> OperatorCall::whole_numbers(std::string_view argument) const {
  std::vector<int64_t> numbers;
  for (const BatchNumber& number : batch_numbers(argument)) {
    if (!number.is_fixed()) throw NotTranslated("its " + std::string(argument) + " depends on the inputs' sizes");
    numbers.push_back(number.rest);
  }
  return numbers;
}

int64_t OperatorCall::whole_number(std::string_view argument) const {
  const auto numbers = whole_numbers(argument);
  if (numbers.size() != 1) throw NotTranslated("its " + std::string(argument) + " is not one integer");
  return numbers[0];
}

double OperatorCall::real(std::string_view argument) const {
  const ProgramArgument& number = plain(argument);
  if (number.plain.isDouble()) return number.plain.toDouble();
  if (number.plain.isBool()) return number.plain.toBool() ? 1 : 0;
  return static_cast<double>(whole_number(argument));
}

std::vector<double> OperatorCall::reals(std::string_view argument) const {
  const c10::IValue& list = plain(argument).plain;
  return list.isDoubleList() ? list.toDoubleVector() : std::vector<double>{};
}

bool OperatorCall::flag(std::string_view argument) const {
  return has(argument) && plain(argument).plain.isBool() && plain(argument).plain.toBool();
}

std::string OperatorCall::text(std::string_view argument, const std::string& otherwise) const {
  return has(argument) && plain(argument).plain.isString() ? plain(argument).plain.toStringRef() : otherwise;
}

int64_t OperatorCall::dimension(std::string_view argument, std::string_view of) const {
  return wrapped(whole_number(argument), rank(of));
}

std::vector<int64_t> OperatorCall::dimensions(std::string_view argument, std::string_view of) const {
  std::vector<int64_t> dims;
  if (has(argument)) dims = whole_numbers(argument);
  if (dims.empty()) dims = order_of(rank(of));
  for (int64_t& dim : dims) dim = wrapped(dim, rank(of));
  return dims;
}

std::string OperatorCall::reshaped(const std::string& name, const BatchNumbers& sizes) {
  size_t open = 0;
  bool is_empty = false;
  std::vector<int64_t> numbers;
  for (const BatchNumber& size : sizes) {
    open += size.is_fixed() ? 0 : 1;
    is_empty = is_empty || (size.is_fixed() && size.rest == 0);
    numbers.push_back(size.is_fixed() ? size.rest : -1);
  }
  const std::string shape = open <= 1 && !is_empty ? graph_.numbers(numbers) : graph_.batch_numbers(sizes);
  if (!is_empty) return graph_.add("Reshape", {name, shape});
  return graph_.add("Reshape", {name, shape}, {{"allowzero", int64_t{1}}});
}

std::string OperatorCall::elements(std::string_view of, const std::vector<int64_t>& dims, at::ScalarType dtype) {
  BatchNumbers open;
  int64_t fixed = 1;
  for (const int64_t dim : dims) {
    const BatchNumber size = value(of).sizes.at(static_cast<size_t>(dim));
    if (!size.is_fixed()) open.push_back(size);
    fixed *= size.is_fixed() ? size.rest : 1;
  }
  if (open.empty()) return graph_.whole_number(fixed, dtype);
  open.push_back({0, fixed});
  return graph_.cast(graph_.add("ReduceProd", {graph_.batch_numbers(open)}, {{"keepdims", int64_t{0}}}), dtype);
}

std::string OperatorCall::reduced(const std::string& op, const std::string& name, const std::vector<int64_t>& dims,
                                  bool keepdim) {
  const int64_t keeps = keepdim ? 1 : 0;
  if (dims.empty()) return name;  // of a tensor without dimensions
  if (op == "ReduceSum" || graph_.opset() >= 18) {
    return graph_.add(op, {name, graph_.numbers(dims)}, {{"keepdims", keeps}});
  }
  return graph_.add(op, {name}, {{"axes", dims}, {"keepdims", keeps}});
}

at::ScalarType OperatorCall::common_type(std::string_view one, std::string_view other) const {
  if (!is_tensor(other)) {
    const c10::IValue& number = plain(other).plain;
    return at::result_type(stand_in(value(one)), number.isBool()  ? at::Scalar(number.toBool())
                                                 : number.isInt() ? at::Scalar(number.toInt())
                                                                  : at::Scalar(number.toDouble()));
  }
  return at::result_type(stand_in(value(one)), stand_in(value(other)));
}

std::vector<int64_t> order_of(int64_t count, int64_t first) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), first);
  return order;
}

Term node(const char* op, std::initializer_list<Operand> operands) {
  const auto* first =
      std::find_if(operands.begin(), operands.end(), [](const Operand& o) { return o.term != nullptr; });
  std::vector<std::string> names;
  for (const Operand& each : operands) {
    names.push_back(each.term != nullptr ? each.term->name() : first->term->number(each.value).name());
  }
  return first->term->as(first->term->graph().add(op, names));
}

const Translations& translations() {
  static const Translations all = [] {
    Translations table;
    for (const TranslationRows& rows : {elementwise_translations(), layer_translations(), image_translations(),
                                        shape_translations(), index_translations(), reduction_translations()}) {
      for (const auto& [translation, names] : rows) {
        std::istringstream stream(names);
        for (std::string name; stream >> name;) table.emplace(name, translation);
      }
    }
    return table;
  }();
  return all;
}

Graph make_graph(const Program& program, const PortNames& names, int64_t opset) {
  return GraphMaker(program, opset).make(names);
}

}  // namespace levin::onnx
