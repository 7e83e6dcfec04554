// What one run of a model called, operator by operator. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace levin::onnx {

/// Stands for a tensor that is undefined, or None.
inline constexpr int64_t kNoValue = -1;

/// A tensor as it is between two writes into it.
struct TracedValue {
  enum class Kind { input, parameter, constant, result };

  Kind kind = Kind::result;
  std::string name = "";   // of an input or a parameter
  at::Tensor tensor = {};  // its numbers, where they do not depend on the inputs: always of parameters and constants,
                           // and of what is computed of parameters where the Tracer keeps them
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes = {};
  bool is_number = false;    // made of a plain number, which decides no type ("x * 2")
  bool is_computed = false;  // of an input
  bool is_weight = false;    // a parameter, or computed of parameters and constants alone
  bool is_unset = false;     // memory that nothing was written to
};

struct TracedArgument {
  enum class Kind { plain, tensor, tensors };

  Kind kind = Kind::plain;
  c10::IValue plain = {};
  std::vector<int64_t> values = {};  // of a tensor (one) or a list of tensors
};

struct TracedCall {
  c10::OperatorHandle op;
  std::string name = "";                       // "add", also of "aten::add_.Tensor" and "aten::add.out"
  std::vector<TracedArgument> arguments = {};  // as in the schema
  std::vector<int64_t> results = {};           // those of a list one after another
};

struct Trace {
  std::vector<TracedValue> values = {};
  std::vector<TracedCall> calls = {};
  std::vector<int64_t> inputs = {};
  std::vector<int64_t> outputs = {};
};

}  // namespace levin::onnx
