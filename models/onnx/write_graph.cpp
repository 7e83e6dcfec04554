#include "levin/models/onnx/write_graph.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/version.h"
#include "levin/core/wire_message.h"

namespace levin::onnx {

namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kLeastBeside = 1024;  // bytes of a tensor that is written to a file of its own

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
enum : uint32_t { real = 1, whole = 2, text = 3, tensor = 4, wholes = 7, texts = 8 };
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
    type = attribute_type::whole;
    message.number(field::i, static_cast<uint64_t>(*whole));
  } else if (const auto* real = std::get_if<double>(&value)) {
    type = attribute_type::real;
    message.real32(field::f, static_cast<float>(*real));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    type = attribute_type::text;
    message.bytes(field::s, *text);
  } else if (const auto* wholes = std::get_if<std::vector<int64_t>>(&value)) {
    type = attribute_type::wholes;
    for (const int64_t one : *wholes) message.number(field::ints, static_cast<uint64_t>(one));
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    type = attribute_type::texts;
    for (const std::string& one : *texts) message.bytes(field::strings, one);
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
    const bool is_beside = has_file && data.size() >= kLeastBeside;
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

void write_graph(const std::string& path, const Graph& graph, uint64_t most_bytes) {
  const std::string beside = std::filesystem::path(path).filename().string() + ".data";
  const Initializers weights = initializers_of(graph, weight_bytes(graph) > most_bytes, beside);
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
