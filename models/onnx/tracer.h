// What one run of a model called, operator by operator. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/libtorch/below_autograd.h"
#include "levin/libtorch/operator_values.h"

namespace levin::onnx {

/// Stands for a tensor that is undefined, or None.
inline constexpr int64_t kNoValue = -1;

/// A tensor's value between two writes into it.
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
  std::vector<int64_t> results = {};           // the items of a list one after another
};

struct Trace {
  std::vector<TracedValue> values = {};
  std::vector<TracedCall> calls = {};
  std::vector<int64_t> inputs = {};
  std::vector<int64_t> outputs = {};
};

// What a trace needs to know of an operator, most of it from its schema.

/// "add" for "aten::add", and for "aten::add_", which computes the same; "mine::add" of another library.
[[nodiscard]] std::string functional_name(const c10::OperatorHandle& op);

/// Whether it is made of other operators, and no kernel of the CPU's.
[[nodiscard]] bool is_composite(const c10::OperatorHandle& op);

/// These take functional names.
[[nodiscard]] bool leaves_memory_unset(const std::string& name);  // empty, …
[[nodiscard]] bool ignores_first(const std::string& name);        // fill, zeros_like, …: it reads a shape at most
[[nodiscard]] bool reads_number(const std::string& name);  // item, …: it gives C++ a number, a condition or sizes

/// Whether the argument is a tensor for results that is given to an overload ".out".
[[nodiscard]] bool is_out_argument(const c10::OperatorHandle& op, size_t position);
[[nodiscard]] bool writes_anything(const c10::OperatorHandle& op);
[[nodiscard]] std::vector<at::Tensor> written_tensors(const c10::OperatorHandle& op,
                                                      const std::vector<c10::IValue>& arguments);

/// The values that a call reads: neither a first argument that only gives a shape, nor tensors for results. `Call` is a
/// TracedCall or a ProgramCall.
template <class Call, class See>
void each_read_value(const Call& call, See see) {
  for (size_t k = ignores_first(call.name) ? 1 : 0; k < call.arguments.size(); ++k) {
    if (is_out_argument(call.op, k)) continue;
    for (const int64_t id : call.arguments[k].values) {
      if (id >= 0) see(id);
    }
  }
}

/// All defined tensors, also those in lists.
void each_tensor(const std::vector<c10::IValue>& values, const std::function<void(const at::Tensor&)>& see);

// Which value each tensor of a trace holds, also after a write through another tensor that shares its memory.

/// Tensors are told apart by their TensorImpl, memory by its StorageImpl. Both are kept from being reused at their
/// address, but not alive.
class TracedMemory {
 public:
  struct Holder {
    int64_t value = -1;
    at::TensorImpl* parent = nullptr;  // whose memory it views; null: its own, or unknown
    size_t call = 0;                   // which made it of its parent
    size_t result = 0;                 // as which of that call's results
    bool is_stale = false;             // its memory was written through another tensor
    std::string lost_write = "";       // which write through a view could not be followed, in words
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes = {};
    std::vector<int64_t> strides = {};
    int64_t offset = 0;
  };

  /// Null if the tensor was not seen.
  [[nodiscard]] Holder* find(const at::Tensor& tensor);
  [[nodiscard]] Holder& at(at::TensorImpl* tensor) { return holders_.at(tensor).holder; }
  /// Another tensor with the same elements of the same memory.
  [[nodiscard]] Holder* find_same_elements(const at::Tensor& tensor);
  /// All tensors that were seen in the memory of this one.
  [[nodiscard]] std::vector<at::TensorImpl*> sharing(const at::Tensor& tensor) const;

  /// The tensor itself; undefined if it is gone.
  [[nodiscard]] at::Tensor tensor(at::TensorImpl* tensor) const;

  /// Adds a tensor that was not seen before, or that holds a different value from now on. Its memory counts as its own
  /// unless the caller changes the result.
  Holder& add(const at::Tensor& tensor, int64_t value);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

  struct Kept {
    Holder holder;
    WeakTensor tensor;
  };

  std::unordered_map<at::TensorImpl*, Kept> holders_ = {};
  std::unordered_map<c10::StorageImpl*, std::vector<at::TensorImpl*>> storages_ = {};
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> kept_storages_ = {};
};

// Records what a model calls while it computes, as values without memory: a write in place becomes a new value, and
// what shares the written memory is made again from it.

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What a traced model writes into its parameters is undone at the end of its life, which must be longer than the
/// Tracer's.
class OverwrittenParameters {
 public:
  OverwrittenParameters() = default;
  ~OverwrittenParameters();
  OverwrittenParameters(const OverwrittenParameters&) = delete;
  OverwrittenParameters& operator=(const OverwrittenParameters&) = delete;

  void add(const at::Tensor& parameter, const at::Tensor& numbers) { before_.emplace_back(parameter, numbers); }
  /// Whether it is in the memory of one of them.
  [[nodiscard]] bool holds(const at::Tensor& tensor) const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> before_ = {};
};

class Tracer final : public OperatorObserver {
 public:
  /// `is_whole`: whether an operator of this name ("linear") is recorded as one call; other composite operators are
  /// recorded as the operators that they call. Construct it where autograd records nothing (c10::InferenceMode), or
  /// composite operators are not seen. `keeps_weights`: whether the trace holds the numbers of what is computed of
  /// parameters.
  Tracer(const NamedTensors& parameters, OverwrittenParameters& overwritten,
         std::function<bool(const std::string&)> is_whole, bool keeps_weights);

  void add_input(const std::string& name, const at::Tensor& tensor);
  /// Throws Error for what no graph can repeat: a number that is read of a computed tensor, memory that changes without
  /// an operator.
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) override;

  [[nodiscard]] Trace take(const std::vector<at::Tensor>& outputs);

 private:
  using Values = std::vector<c10::IValue>;

  int64_t add_value(TracedValue value, const at::Tensor& like);
  int64_t value_of(const at::Tensor& tensor);
  int64_t value_of_unknown(const at::Tensor& tensor);
  [[nodiscard]] TracedCall call_of(const c10::OperatorHandle& op, const Values& arguments);
  [[nodiscard]] const TracedValue& value(int64_t id) const { return trace_.values[static_cast<size_t>(id)]; }
  [[nodiscard]] bool gives_numbers(const TracedCall& call) const;
  [[nodiscard]] bool reads_weights(const TracedCall& call) const;
  [[nodiscard]] bool computes(const TracedCall& call) const;
  void check_number(const TracedCall& call, const Values& results) const;
  void note_filling(const at::Tensor& tensor, TracedValue& value);
  void record(TracedCall call, const Values& arguments, const Values& results);
  void note_view(const at::Tensor& result, size_t call, size_t number, const Values& arguments);

  // What writes change.
  void keep_before_writes(const c10::OperatorHandle& op, const Values& arguments);
  void write(const at::Tensor& tensor, int64_t value, const std::string& writer);
  int64_t replace_part(const TracedMemory::Holder& view, const TracedMemory::Holder& whole, int64_t part);
  /// `memory`: any tensor of the same memory.
  void refresh(const at::Tensor& memory, at::TensorImpl* tensor);
  int64_t add_call(TracedCall call, const std::vector<int64_t>& results_like, size_t number,
                   const at::Tensor& constant);

  Trace trace_;
  TracedMemory memory_;
  std::function<bool(const std::string&)> is_whole_;
  bool keeps_weights_;
  OverwrittenParameters& overwritten_;
  std::string reader_ = "";  // the operator whose arguments are looked at, for errors
};

}  // namespace levin::onnx
