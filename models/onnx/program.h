// A traced model with the batch size as a variable, and the length if wanted: what all traces have in common. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/models/onnx/graph.h"
#include "levin/models/onnx/tracer.h"

namespace levin::onnx {

struct ProgramValue {
  TracedValue::Kind kind = TracedValue::Kind::result;
  std::string name = "";
  at::Tensor tensor = {};  // a parameter's or a constant's numbers; undefined if they depend on the batch
  at::ScalarType dtype = at::kFloat;
  BatchNumbers sizes = {};
  std::optional<BatchNumber> number = std::nullopt;  // of a constant () that follows from the sizes of the inputs
  bool is_unset = false;                             // memory that nothing was written to
  bool is_number = false;                            // made of a plain number, which decides no type
  bool is_weight = false;                            // a parameter, or computed of parameters and constants alone
  std::string problem = "";                          // of its sizes, in words: why no graph can have it
};

struct ProgramArgument {
  TracedArgument::Kind kind = TracedArgument::Kind::plain;
  c10::IValue plain = {};
  BatchNumbers numbers = {};  // if it is an int or a list of them
  std::vector<int64_t> values = {};
  bool differs = false;  // from trace to trace, in a way that no BatchNumber describes
};

struct ProgramCall {
  c10::OperatorHandle op;
  std::string name = "";
  std::vector<ProgramArgument> arguments = {};
  std::vector<int64_t> results = {};
};

struct Program {
  std::vector<ProgramValue> values = {};
  std::vector<ProgramCall> calls = {};
  std::vector<int64_t> inputs = {};
  std::vector<int64_t> outputs = {};
};

using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct TraceRequest {
  NamedTensors parameters = {};                           // and buffers
  NamedTensors inputs = {};                               // an example; samples along the first dimension, at least one
  Forward forward = {};                                   // is given such tensors, in their order
  bool dynamic_batch = true;                              // trace with several batch sizes
  bool dynamic_length = false;                            // and with several sizes of the inputs' second dimension
  std::function<bool(const std::string&)> is_whole = {};  // see Tracer
};

/// Runs the model in inference mode, at trace_points or with the example itself. With dynamic_length all inputs with
/// the first input's second dimension have the same length. Throws Error where a size decides what is called, and what
/// Tracer throws.
[[nodiscard]] Program trace_program(const TraceRequest& request);

/// The traces must be of these points. Throws Error where they call different operators.
[[nodiscard]] Program merge_traces(const std::vector<Trace>& traces, const std::vector<TracePoint>& points);

}  // namespace levin::onnx
