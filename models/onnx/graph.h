// A graph of ONNX in memory. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/error.h"
#include "levin/models/onnx/batch_number.h"

namespace levin::onnx {

/// An operator, or this use of it, has no translation; what() is a clause ("only over whole dimensions").
class NotTranslated : public Error {
 public:
  using Error::Error;
};

using AttributeValue =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>, at::Tensor>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

struct Node {
  std::string op = "";
  std::vector<std::string> inputs = {};  // "": left out
  std::vector<std::string> outputs = {};
  Attributes attributes = {};
};

/// An input or output of the graph.
struct Port {
  std::string name = "";
  at::ScalarType dtype = at::kFloat;
  BatchNumbers sizes = {};
};

struct Graph {
  int64_t opset = 18;
  std::vector<Node> nodes = {};
  std::vector<std::pair<std::string, at::Tensor>> initializers = {};
  std::vector<Port> inputs = {};
  std::vector<Port> outputs = {};
};

/// Adds nodes to a graph, and gives their results names.
class GraphBuilder {
 public:
  explicit GraphBuilder(int64_t opset) { graph_.opset = opset; }

  [[nodiscard]] int64_t opset() const { return graph_.opset; }
  /// The names of inputs and initializers must be taken before names are made up.
  [[nodiscard]] std::string add_initializer(const std::string& name, const at::Tensor& tensor);
  /// Returns the input's name, which differs from `port.name` if that is taken.
  std::string add_input(Port port);
  /// As an output of the graph under `port.name`.
  void add_output(Port port, const std::string& value);

  /// The name of the node's only result, or its results' names.
  std::string add(const std::string& op, const std::vector<std::string>& inputs, Attributes attributes = {});
  std::vector<std::string> add_several(size_t results, const std::string& op, const std::vector<std::string>& inputs,
                                       Attributes attributes = {});

  /// Numbers in the graph; the same ones are there once.
  [[nodiscard]] std::string constant(const at::Tensor& tensor);
  [[nodiscard]] std::string numbers(const std::vector<int64_t>& numbers);        // (n) int64
  [[nodiscard]] std::string number(double number, at::ScalarType dtype);         // ()
  [[nodiscard]] std::string whole_number(int64_t number, at::ScalarType dtype);  // ()
  /// (n) int64, of which some are computed of the batch size and the length.
  [[nodiscard]] std::string batch_numbers(const BatchNumbers& numbers);
  /// The same as one number, ().
  [[nodiscard]] std::string batch_number(const BatchNumber& number);
  /// start, start + step, …: `count` numbers, (count) int64.
  [[nodiscard]] std::string range(const BatchNumber& start, const BatchNumber& count, int64_t step);

  [[nodiscard]] std::string cast(const std::string& value, at::ScalarType dtype);

  [[nodiscard]] Graph take() { return std::move(graph_); }
  [[nodiscard]] const Graph& graph() const { return graph_; }

 private:
  [[nodiscard]] std::string unused_name(const std::string& like);
  [[nodiscard]] std::string input_size(bool (BatchNumber::*is_it)() const, std::string& known);
  [[nodiscard]] std::string computed(const BatchNumber& number);

  Graph graph_;
  std::map<std::string, int64_t> names_ = {};          // how many begin like this
  std::map<std::string, std::string> constants_ = {};  // by type, shape and bytes
  std::string batch_ = "", length_ = "";               // (1) int64, once they were needed
};

/// TensorProto.DataType. Throws NotTranslated for a type that ONNX's operators do not compute with.
[[nodiscard]] int64_t onnx_type(at::ScalarType dtype);

}  // namespace levin::onnx
