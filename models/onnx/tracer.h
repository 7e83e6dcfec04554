// Records what a model calls while it computes, as values without memory: a write in place becomes a new value, and
// what shares the written memory is made again from it. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "levin/dispatch/below_autograd.h"
#include "levin/models/onnx/trace.h"
#include "levin/models/onnx/traced_memory.h"

namespace levin::onnx {

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
  /// `is_whole`: whether an operator of this name ("linear") is recorded as it is; other composite ones are recorded as
  /// the operators that they call. Construct it where autograd records nothing (c10::InferenceMode), or composite
  /// operators are not seen. `keeps_weights`: whether the trace holds the numbers of what is computed of parameters.
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

  // What writes change, in tracer_writes.cpp.
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
