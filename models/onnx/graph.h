// A graph of ONNX in memory, and as a file. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/options/error.h"

namespace levin::onnx {

/// What a model was traced with: samples in the batch, and their length if that may vary (else 0).
struct TracePoint {
  int64_t batch = 0;
  int64_t length = 0;

  bool operator==(const TracePoint&) const = default;
};

/// per_sample * batch + rest + per_position * length + per_both * batch * length
struct BatchNumber {
  int64_t per_sample = 0;
  int64_t rest = 0;
  int64_t per_position = 0;
  int64_t per_both = 0;

  [[nodiscard]] bool is_fixed() const { return per_sample == 0 && per_position == 0 && per_both == 0; }
  [[nodiscard]] bool is_batch() const { return *this == BatchNumber{1, 0}; }
  [[nodiscard]] bool is_length() const { return *this == BatchNumber{0, 0, 1}; }
  /// Whether it is below 0 for large batches and lengths.
  [[nodiscard]] bool is_negative() const;
  [[nodiscard]] int64_t at(const TracePoint& point) const;
  /// "12", "batch", "4*batch+1", "batch*length"
  [[nodiscard]] std::string text() const;

  bool operator==(const BatchNumber&) const = default;
};

[[nodiscard]] BatchNumber operator+(const BatchNumber& one, const BatchNumber& other);
[[nodiscard]] BatchNumber operator*(const BatchNumber& number, int64_t factor);

using BatchNumbers = std::vector<BatchNumber>;

/// The points at which a model is traced: of several batch sizes, and of several lengths up to `length` if that is not
/// 0 (then at least 4). The first four decide a BatchNumber, the others check it.
[[nodiscard]] std::vector<TracePoint> trace_points(int64_t length);

/// Returns the number that has these `values` at these points, which are a single point or trace_points(); nothing if
/// no BatchNumber does.
[[nodiscard]] std::optional<BatchNumber> fit_batch_number(const std::vector<TracePoint>& points,
                                                          const std::vector<int64_t>& values);

// A graph of ONNX in memory.

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

// Writes a graph as a file of ONNX: a ModelProto of protocol buffers.

/// A file of protocol buffers holds at most 2 GiB: weights that exceed `max_bytes` together are written to a second
/// file.
inline constexpr uint64_t kMaxFileBytes = (uint64_t{1} << 31) - (uint64_t{1} << 26);

/// Writes `path`, and `path`.data for tensors of 1 KiB and more if the weights are too large for one file. Each is
/// written whole or not at all. Throws Error naming path and cause.
void write_graph(const std::string& path, const Graph& graph, uint64_t max_bytes = kMaxFileBytes);

}  // namespace levin::onnx
