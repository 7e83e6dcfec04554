#include "levin/models/onnx/operator_call.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>

#include <numeric>

namespace levin::onnx {

namespace {

// A tensor that counts in type promotion as the value does.
at::Tensor stand_in(const ProgramValue& value) {
  const std::vector<int64_t> sizes(value.sizes.empty() ? 0 : 1, 0);
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(value.dtype));
  if (value.is_number) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

int64_t wrapped(int64_t dim, int64_t rank) {
  const int64_t dims = std::max<int64_t>(rank, 1);
  return dim < 0 ? dim + dims : dim;
}

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

const std::vector<int64_t>& OperatorCall::list(std::string_view argument) const {
  return plain(argument).values;
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

int64_t OperatorCall::rank(std::string_view argument) const {
  return static_cast<int64_t>(value(argument).sizes.size());
}

const BatchNumbers& OperatorCall::batch_numbers(std::string_view argument) const {
  return plain(argument).numbers;
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
  if (numbers.size() != 1) throw NotTranslated("its " + std::string(argument) + " is no whole number");
  return numbers[0];
}

int64_t OperatorCall::whole_number(std::string_view argument, int64_t otherwise) const {
  return has(argument) ? whole_number(argument) : otherwise;
}

double OperatorCall::real(std::string_view argument) const {
  const ProgramArgument& number = plain(argument);
  if (number.plain.isDouble()) return number.plain.toDouble();
  if (number.plain.isBool()) return number.plain.toBool() ? 1 : 0;
  return static_cast<double>(whole_number(argument));
}

double OperatorCall::real(std::string_view argument, double otherwise) const {
  return has(argument) ? real(argument) : otherwise;
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
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(rank(of)));
    std::iota(dims.begin(), dims.end(), 0);
  }
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

std::string OperatorCall::expanded(const std::string& name, const BatchNumbers& sizes) {
  return graph_.add("Expand", {name, graph_.batch_numbers(sizes)});
}

std::string OperatorCall::cast_from(const std::string& name, at::ScalarType from, at::ScalarType to) {
  return from == to ? name : graph_.cast(name, to);
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

}  // namespace levin::onnx
