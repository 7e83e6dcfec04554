#include "levin/models/onnx/graph.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/files/wire_message.h"
#include "levin/core/options/error.h"
#include "levin/core/version.h"

namespace levin::onnx {

namespace {

constexpr size_t kMaxComparedBytes = 1 << 16;  // bytes of a constant that is compared with the others

using Bytes = std::span<const std::byte>;

constexpr size_t kMinExternalBytes = 1024;  // bytes of a tensor that is written to a file of its own

// Field numbers of onnx.proto, by message. Fields are written in the order of their numbers, and lists of numbers one
// by one, as Google's writers do for this proto2 file: the same model gives the same bytes.
namespace model_field {
enum : uint32_t { ir_version = 1, producer_name = 2, producer_version = 3, graph = 7, opset_import = 8 };
}
namespace graph_field {
enum : uint32_t { node = 1, name = 2, initializer = 5, input = 11, output = 12 };
}
namespace node_field {
enum : uint32_t { input = 1, output = 2, name = 3, op_type = 4, attribute = 5 };
}
namespace attribute_field {
enum : uint32_t { name = 1, f = 2, i = 3, s = 4, t = 5, ints = 8, strings = 9, type = 20 };
}
namespace attribute_type {
enum : uint32_t { real = 1, integer = 2, string = 3, tensor = 4, ints = 7, strings = 8 };
}
namespace tensor_field {
enum : uint32_t { dims = 1, data_type = 2, name = 8, raw_data = 9, external_data = 13, data_location = 14 };
}

// The first IR version that may hold the opset, from onnx's table of releases.
uint64_t ir_version(int64_t opset) {
  return opset <= 18 ? 8 : opset <= 20 ? 9 : 10;
}

Bytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Bytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// A TensorProto without its data.
WireMessage tensor_head(const std::string& name, const at::Tensor& tensor) {
  WireMessage head;
  for (const int64_t size : tensor.sizes()) head.number(tensor_field::dims, static_cast<uint64_t>(size));
  head.number(tensor_field::data_type, static_cast<uint64_t>(onnx_type(tensor.scalar_type())));
  if (!name.empty()) head.text(tensor_field::name, name);
  return head;
}

WireMessage small_tensor(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  WireMessage message = tensor_head("", dense);
  return message.bytes(tensor_field::raw_data, {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

WireMessage attribute_message(const std::string& name, const AttributeValue& value) {
  namespace field = attribute_field;
  WireMessage message;
  message.text(field::name, name);
  uint32_t type = 0;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    type = attribute_type::integer;
    message.number(field::i, static_cast<uint64_t>(*whole));
  } else if (const auto* real = std::get_if<double>(&value)) {
    type = attribute_type::real;
    message.real32(field::f, static_cast<float>(*real));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    type = attribute_type::string;
    message.bytes(field::s, *text);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    type = attribute_type::ints;
    for (const int64_t one : *ints) message.number(field::ints, static_cast<uint64_t>(one));
  } else if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
    type = attribute_type::strings;
    for (const std::string& one : *strings) message.bytes(field::strings, one);
  } else {
    type = attribute_type::tensor;
    message.message(field::t, small_tensor(std::get<at::Tensor>(value)));
  }
  return message.number(field::type, type);
}

WireMessage node_message(const Node& node) {
  WireMessage message;
  for (const std::string& input : node.inputs) message.text(node_field::input, input);
  for (const std::string& output : node.outputs) message.text(node_field::output, output);
  message.text(node_field::name, node.outputs.at(0));
  message.text(node_field::op_type, node.op);
  for (const auto& [name, value] : node.attributes) {
    message.message(node_field::attribute, attribute_message(name, value));
  }
  return message;
}

// ValueInfoProto { name, type: TypeProto { tensor_type { elem_type, shape { dim { dim_value | dim_param } } } } }
WireMessage port_message(const Port& port) {
  WireMessage shape;
  for (const BatchNumber& size : port.sizes) {
    WireMessage dim;
    size.is_fixed() ? dim.number(1, static_cast<uint64_t>(size.rest)) : dim.text(2, size.text());
    shape.message(1, dim);
  }
  WireMessage tensor, type, message;
  tensor.number(1, static_cast<uint64_t>(onnx_type(port.dtype))).message(2, shape);
  type.message(1, tensor);
  return message.text(1, port.name).message(2, type);
}

WireMessage model_head(const Graph& graph) {
  WireMessage head;
  head.number(model_field::ir_version, ir_version(graph.opset));
  return head.text(model_field::producer_name, "levin").text(model_field::producer_version, version());
}

WireMessage model_tail(const Graph& graph) {
  WireMessage opset, tail;
  opset.text(1, "").number(2, static_cast<uint64_t>(graph.opset));
  return tail.message(model_field::opset_import, opset);
}

WireMessage graph_head(const Graph& graph) {
  WireMessage head;
  for (const Node& node : graph.nodes) head.message(graph_field::node, node_message(node));
  return head.text(graph_field::name, "model");
}

WireMessage graph_tail(const Graph& graph) {
  WireMessage tail;
  for (const Port& port : graph.inputs) tail.message(graph_field::input, port_message(port));
  for (const Port& port : graph.outputs) tail.message(graph_field::output, port_message(port));
  return tail;
}

void refer_to(WireMessage& head, const std::string& file, uint64_t offset, uint64_t bytes) {
  const auto add = [&](const char* key, const std::string& value) {
    WireMessage entry;
    head.message(tensor_field::external_data, entry.text(1, key).text(2, value));
  };
  add("location", file);
  add("offset", std::to_string(offset));
  add("length", std::to_string(bytes));
  head.number(tensor_field::data_location, 1);
}

// Initializers as fields of the graph: each a head, which its data follow unless they are in a file of their own.
struct Initializers {
  std::vector<std::string> heads = {};
  std::vector<Bytes> follows = {};  // empty for those in the file
  std::vector<Bytes> file = {};
};

// Small ones, such as shapes, stay in the graph, where readers look at them without the file.
Initializers initializers_of(const Graph& graph, bool has_file, const std::string& file) {
  Initializers all;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : graph.initializers) {
    WireMessage head = tensor_head(name, tensor), field;
    const Bytes data = bytes_of(tensor);
    const bool is_beside = has_file && data.size() >= kMinExternalBytes;
    if (is_beside) {
      refer_to(head, file, offset, data.size());
      all.file.push_back(data);
      offset += data.size();
    } else {
      head.bytes_follow(tensor_field::raw_data, data.size());
    }
    all.follows.push_back(is_beside ? Bytes() : data);
    field.bytes_follow(graph_field::initializer, head.encoded().size() + all.follows.back().size());
    all.heads.push_back(field.encoded() + head.encoded());
  }
  return all;
}

uint64_t weight_bytes(const Graph& graph) {
  uint64_t total = 0;
  for (const auto& [name, tensor] : graph.initializers) total += tensor.nbytes();
  return total;
}

uint64_t total_bytes(const std::vector<Bytes>& parts) {
  uint64_t total = 0;
  for (const Bytes& part : parts) total += part.size();
  return total;
}

}  // namespace

int64_t BatchNumber::at(const TracePoint& point) const {
  return per_sample * point.batch + rest + per_position * point.length + per_both * point.batch * point.length;
}

bool BatchNumber::is_negative() const {
  if (is_fixed()) return rest < 0;
  return per_both != 0 ? per_both < 0 : per_sample <= 0 && per_position <= 0;
}

BatchNumber operator+(const BatchNumber& one, const BatchNumber& other) {
  return {one.per_sample + other.per_sample, one.rest + other.rest, one.per_position + other.per_position,
          one.per_both + other.per_both};
}

BatchNumber operator*(const BatchNumber& number, int64_t factor) {
  return {number.per_sample * factor, number.rest * factor, number.per_position * factor, number.per_both * factor};
}

std::string BatchNumber::text() const {
  std::string text;
  const std::pair<int64_t, const char*> terms[] = {
      {per_both, "batch*length"}, {per_sample, "batch"}, {per_position, "length"}};
  for (const auto& [factor, name] : terms) {
    if (factor == 0) continue;
    text += text.empty() || factor < 0 ? "" : "+";
    text += factor == 1 ? name : std::to_string(factor) + "*" + name;
  }
  if (text.empty()) return std::to_string(rest);
  return rest == 0 ? text : text + (rest > 0 ? "+" : "") + std::to_string(rest);
}

// Sizes that models rarely have by chance, and none for which PyTorch has rules of its own, as it has for 1.
std::vector<TracePoint> trace_points(int64_t length) {
  if (length == 0) return {{2, 0}, {3, 0}, {5, 0}};
  return {{2, length}, {3, length}, {2, length - 1}, {3, length - 1}, {5, length - 2}, {3, length - 2}};
}

std::optional<BatchNumber> fit_batch_number(const std::vector<TracePoint>& points, const std::vector<int64_t>& values) {
  if (values.size() < 2) return BatchNumber{0, values.at(0)};
  BatchNumber number;
  const bool has_length = points.front().length != 0;
  number.per_sample = values[1] - values[0];  // of one sample more
  if (has_length) {                           // and of one position less
    number.per_both = number.per_sample - (values[3] - values[2]);
    number.per_sample -= number.per_both * points[0].length;
    number.per_position = values[0] - values[2] - number.per_both * points[0].batch;
  }
  number.rest = values[0] - BatchNumber{number.per_sample, 0, number.per_position, number.per_both}.at(points[0]);
  for (size_t k = 0; k < values.size(); ++k) {
    if (number.at(points[k]) != values[k]) return std::nullopt;
  }
  return number;
}

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
  if (dense.nbytes() > kMaxComparedBytes) return add_initializer("constant", dense);
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

void write_graph(const std::string& path, const Graph& graph, uint64_t max_bytes) {
  const std::string beside = std::filesystem::path(path).filename().string() + ".data";
  const Initializers weights = initializers_of(graph, weight_bytes(graph) > max_bytes, beside);
  if (!weights.file.empty()) write_file_durably(path + ".data", weights.file);
  const std::string before = graph_head(graph).encoded(), behind = graph_tail(graph).encoded();
  std::vector<Bytes> parts{bytes_of(before)};
  for (size_t k = 0; k < weights.heads.size(); ++k) {
    parts.push_back(bytes_of(weights.heads[k]));
    parts.push_back(weights.follows[k]);
  }
  parts.push_back(bytes_of(behind));
  const std::string head = model_head(graph).bytes_follow(model_field::graph, total_bytes(parts)).encoded();
  const std::string tail = model_tail(graph).encoded();
  parts.insert(parts.begin(), bytes_of(head));
  parts.push_back(bytes_of(tail));
  write_file_durably(path, parts);
}

}  // namespace levin::onnx
