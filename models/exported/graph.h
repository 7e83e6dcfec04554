// A program of torch.export as read from its file: names resolved to indices, nothing looked up in LibTorch yet.
// Internal.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace levin::exported {

struct Graph;

/// What a name stands for.
enum class ValueType { tensor, number, none };

/// An argument of a node, a result of one, or an output of a graph.
struct Argument {
  enum class Kind { constant, value, list, graph };
  Kind kind = Kind::constant;
  c10::IValue constant = {};  // None, a number, a string, a device, or a list of these; dtypes and layouts are numbers
  size_t value = 0;           // index into Graph::values
  std::vector<Argument> items = {};  // of a list: values and constants
  bool is_tensors = false;           // the list's items are tensors, or None
  std::shared_ptr<const Graph> graph = {};
};

/// Shape of a user's input at the export.
struct InputShape {
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> sizes = {};        // -1: any size
  std::vector<std::string> symbols = {};  // of the sizes that are -1; "": one that follows from others
};

/// A call of a module in Python.
struct ModuleCall {
  std::string name;  // qualified; "" is the whole model
  std::string key;   // of this call: the same module has another key when it is called again
};

struct NodeInput {
  std::string name;  // of the operator's schema
  Argument argument;
};

struct Node {
  std::string name;
  std::string target;  // torch.ops.aten.linear.default, _operator.mul, …
  std::vector<NodeInput> inputs;
  std::vector<Argument> outputs;
  std::vector<ModuleCall> modules = {};  // it was called in, outermost first; empty: the file does not say
  std::string source = {};               // "model.py:12", the innermost line that is not PyTorch's
};

struct Graph {
  std::vector<std::string> values;  // names
  std::vector<ValueType> types;
  std::vector<Argument> inputs;  // kind value, or a constant that the export has fixed
  std::vector<Argument> outputs;
  std::vector<Node> nodes;
};

/// Where an input of the program comes from.
struct InputSpec {
  enum class Kind { parameter, buffer, constant, user, fixed };
  Kind kind = Kind::user;
  std::string name;  // qualified name of a parameter, buffer or constant; a user's input by its argument's name
  bool is_persistent = true;
  InputShape shape = {};  // of a user's tensor
};

/// Where an output of the program goes.
struct OutputSpec {
  enum class Kind { user, buffer, parameter, input };
  Kind kind = Kind::user;
  std::string name;  // of the buffer, parameter or user's input that takes the output's values
};

struct SizeRange {
  std::string symbol;
  int64_t least = 0;
  int64_t most = INT64_MAX;
};

struct Program {
  Graph graph;
  std::vector<InputSpec> inputs;    // one for each of graph.inputs
  std::vector<OutputSpec> outputs;  // one for each of graph.outputs
  std::vector<SizeRange> ranges;
  std::string torch_version;
};

}  // namespace levin::exported
