// Python's operators on numbers, by which an exported program computes sizes: _operator.floordiv, torch.sym_max, …
// Internal.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/models/exported/allowed_operators.h"
#include "levin/models/exported/graph.h"

namespace levin::exported {

/// `arguments` and the result are numbers (int64, double or bool), with Python's meaning: floordiv and mod round down,
/// and truediv gives a double. Throws Error where Python does: a division by zero.
using NumberOperator = c10::IValue (*)(const std::vector<c10::IValue>& arguments);

/// Null if there is none of that name with that many arguments.
[[nodiscard]] NumberOperator number_operator(const std::string& target, size_t arguments);

// A graph whose operators, defaults and argument positions are resolved: what remains for a call is to fill in the
// values.

/// A value that is put into a position of a call's arguments.
struct FilledArgument {
  enum class As { unchanged, double_, tensor, tensors, optional_tensors, ints, doubles, bools };
  size_t position = 0;
  As as = As::unchanged;
  size_t value = 0;
  std::vector<Argument> items = {};  // of a list
  IntegerRange range = {};
};

/// The argument by which train() and eval() change an operator.
struct ModeArgument {
  size_t position = 0;
  c10::IValue when_training = {};
  c10::IValue when_evaluating = {};
};

struct BoundGraph;

struct BoundCall {
  enum class Kind { op, number, size, graph, nothing };
  Kind kind = Kind::nothing;
  std::optional<c10::OperatorHandle> op = {};
  NumberOperator number = nullptr;
  ArgumentCheck memory_check = nullptr;
  bool is_uninitialized = false;            // the result holds what was in memory: it is set to 0
  std::vector<c10::IValue> arguments = {};  // constants and defaults; the others are filled in
  std::vector<FilledArgument> filled = {};
  std::vector<size_t> devices = {};  // positions that take the module's device
  std::optional<ModeArgument> mode = {};
  bool counts_batches = false;  // changes num_batches_tracked, which eval() leaves unchanged
  bool may_differ = false;      // draws random numbers or changes a buffer in any mode: see ModeNotes
  std::function<void(const std::vector<c10::IValue>&)> check = {};  // throws Error for arguments that Python refuses
  size_t results = 0;
  std::vector<Argument> outputs = {};
  std::vector<size_t> released = {};  // values that no later call uses
  std::string name = {};              // for messages: "linear_3 (aten::linear), model.py:12"
  std::vector<ModuleCall> modules = {};
  std::shared_ptr<const BoundGraph> graph = {};  // wrap_with_set_grad_enabled, wrap_with_autocast
};

struct BoundGraph {
  size_t values = 0;
  std::vector<Argument> inputs;
  std::vector<Argument> outputs;
  std::vector<BoundCall> calls;
};

/// In which mode of the model a graph was recorded; both: the model computes the same in both.
enum class RecordedMode { unknown, training, evaluation, both };

/// What the export says about training and evaluation.
struct ModeNotes {
  size_t switches = 0;     // operators that train() and eval() change
  bool is_eval = false;    // the model was in evaluation mode
  size_t fixed_norms = 0;  // decomposed batch norms, which cannot train
  /// Of a graph recorded in training mode: operators that another mode may lack, with the reason. They draw random
  /// numbers or change buffers, which no argument switches off.
  std::vector<std::string> may_differ = {};
  /// Operators that name the floating type of the export, or a number that types with a shorter range cannot hold.
  std::vector<std::string> typed = {};
};

struct BindOptions {
  c10::Device exported_on = c10::Device(c10::kCPU);
  /// Namespaces of the program's own operators (TORCH_LIBRARY) that files may call. "aten" allows all of LibTorch's,
  /// instead of the operators that is_allowed_operator() accepts.
  std::vector<std::string> namespaces = {};
  std::string path = {};
  RecordedMode mode = RecordedMode::unknown;
  c10::ScalarType exported_type = c10::kFloat;  // of the program's floating tensors
};

/// Throws Error that lists everything the graph needs and Levin does not have.
[[nodiscard]] BoundGraph bind_graph(const Program& program, const BindOptions& options, ModeNotes& notes);

}  // namespace levin::exported
