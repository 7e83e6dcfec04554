#include "levin/models/onnx/graph.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

namespace levin::onnx {

namespace {

constexpr size_t kMostCompared = 1 << 16;  // bytes of a constant that is looked for among the others

}  // namespace

int64_t onnx_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return 1;
    case at::kByte: return 2;
    case at::kChar: return 3;
    case at::kUInt16: return 4;
    case at::kShort: return 5;
    case at::kInt: return 6;
    case at::kLong: return 7;
    case at::kBool: return 9;
    case at::kHalf: return 10;
    case at::kDouble: return 11;
    case at::kUInt32: return 12;
    case at::kUInt64: return 13;
    case at::kBFloat16: return 16;
    default: break;
  }
  throw NotTranslated("with tensors of type " + std::string(c10::toString(dtype)) +
                      ", with which ONNX's operators do not compute");
}

std::string GraphBuilder::unused_name(const std::string& like) {
  const int64_t seen = names_[like]++;
  if (seen == 0) return like;
  return unused_name(like + "_" + std::to_string(seen));
}

std::string GraphBuilder::add_initializer(const std::string& name, const at::Tensor& tensor) {
  graph_.initializers.emplace_back(unused_name(name), tensor.contiguous());
  return graph_.initializers.back().first;
}

std::string GraphBuilder::add_input(Port port) {
  port.name = unused_name(port.name);
  graph_.inputs.push_back(std::move(port));
  return graph_.inputs.back().name;
}

void GraphBuilder::add_output(Port port, const std::string& value) {
  port.name = unused_name(port.name);
  graph_.nodes.push_back({"Identity", {value}, {port.name}});
  graph_.outputs.push_back(std::move(port));
}

std::vector<std::string> GraphBuilder::add_several(size_t results, const std::string& op,
                                                   const std::vector<std::string>& inputs, Attributes attributes) {
  Node node{.op = op, .inputs = inputs, .outputs = {}, .attributes = std::move(attributes)};
  for (size_t k = 0; k < results; ++k) node.outputs.push_back(unused_name(op));
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

std::string GraphBuilder::add(const std::string& op, const std::vector<std::string>& inputs, Attributes attributes) {
  return add_several(1, op, inputs, std::move(attributes)).front();
}

std::string GraphBuilder::constant(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  if (dense.nbytes() > kMostCompared) return add_initializer("constant", dense);
  std::string key = std::string(c10::toString(dense.scalar_type())) + c10::str(dense.sizes());
  key.append(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  const auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  return constants_[key] = add_initializer("constant", dense);
}

std::string GraphBuilder::numbers(const std::vector<int64_t>& numbers) {
  return constant(at::tensor(numbers, at::kLong));
}

std::string GraphBuilder::number(double number, at::ScalarType dtype) {
  return constant(at::full({}, number, dtype));
}

std::string GraphBuilder::whole_number(int64_t number, at::ScalarType dtype) {
  return constant(at::full({}, number, dtype));
}

// The batch size or the length, of the first input that has it as a dimension.
std::string GraphBuilder::input_size(bool (BatchNumber::*is_it)() const, std::string& known) {
  if (!known.empty()) return known;
  for (const Port& port : graph_.inputs) {
    for (size_t d = 0; d < port.sizes.size(); ++d) {
      if (!(port.sizes[d].*is_it)()) continue;
      const auto at = static_cast<int64_t>(d);
      return known = add("Slice", {add("Shape", {port.name}), numbers({at}), numbers({at + 1})});
    }
  }
  throw NotTranslated("with a size that no input that the output depends on has");
}

// (1)
std::string GraphBuilder::computed(const BatchNumber& number) {
  std::string sum;
  const auto add_term = [&](int64_t factor, const std::string& term) {
    const std::string scaled = factor == 1 ? term : add("Mul", {term, numbers({factor})});
    sum = sum.empty() ? scaled : add("Add", {sum, scaled});
  };
  const auto batch = [&] { return input_size(&BatchNumber::is_batch, batch_); };
  const auto length = [&] { return input_size(&BatchNumber::is_length, length_); };
  if (number.per_both != 0) add_term(number.per_both, add("Mul", {batch(), length()}));
  if (number.per_sample != 0) add_term(number.per_sample, batch());
  if (number.per_position != 0) add_term(number.per_position, length());
  return number.rest == 0 ? sum : add("Add", {sum, numbers({number.rest})});
}

std::string GraphBuilder::batch_numbers(const BatchNumbers& numbers) {
  std::vector<std::string> pieces;
  std::vector<int64_t> fixed;
  const auto close = [&] {
    if (!fixed.empty()) pieces.push_back(this->numbers(fixed));
    fixed.clear();
  };
  for (const BatchNumber& number : numbers) {
    if (number.is_fixed()) {
      fixed.push_back(number.rest);
      continue;
    }
    close();
    pieces.push_back(computed(number));
  }
  close();
  if (pieces.empty()) return this->numbers({});
  return pieces.size() == 1 ? pieces[0] : add("Concat", pieces, {{"axis", int64_t{0}}});
}

std::string GraphBuilder::batch_number(const BatchNumber& number) {
  if (number.is_fixed()) return whole_number(number.rest, at::kLong);
  return add("Squeeze", {batch_numbers({number}), numbers({0})});
}

std::string GraphBuilder::range(const BatchNumber& start, const BatchNumber& count, int64_t step) {
  const BatchNumber end = start + count * step;
  if (start.is_fixed() && end.is_fixed()) return constant(at::arange(start.rest, end.rest, step, at::kLong));
  return add("Range", {batch_number(start), batch_number(end), whole_number(step, at::kLong)});
}

std::string GraphBuilder::cast(const std::string& value, at::ScalarType dtype) {
  return add("Cast", {value}, {{"to", onnx_type(dtype)}});
}

}  // namespace levin::onnx
