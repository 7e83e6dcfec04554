// What a trace needs to know of an operator, most of it from its schema. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "levin/dispatch/operator_values.h"

namespace levin::onnx {

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

}  // namespace levin::onnx
