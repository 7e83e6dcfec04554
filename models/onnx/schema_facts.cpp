#include "levin/models/onnx/schema_facts.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace levin::onnx {

namespace {

template <size_t N>
bool is_among(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 6> kUnset = {"empty",     "empty_like",        "empty_strided",
                                                    "new_empty", "new_empty_strided", "empty_permuted"};
constexpr std::array<std::string_view, 9> kIgnoring = {"fill",      "zero",      "copy",     "zeros_like", "ones_like",
                                                       "full_like", "new_zeros", "new_ones", "new_full"};
constexpr std::array<std::string_view, 4> kReading = {"_local_scalar_dense", "equal", "is_nonzero", "item"};

}  // namespace

std::string functional_name(const c10::OperatorHandle& op) {
  std::string name = op.schema().name();
  if (name.starts_with("aten::")) name = name.substr(6);
  const auto& arguments = op.schema().arguments();
  const bool in_place = !arguments.empty() && is_written(arguments[0]);
  if (in_place && name.starts_with("__i")) return "__" + name.substr(3);
  if (in_place && name.ends_with('_') && !name.ends_with("__")) name.pop_back();
  return name;
}

bool is_composite(const c10::OperatorHandle& op) {
  return !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
          op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd));
}

bool leaves_memory_unset(const std::string& name) {
  return is_among(kUnset, name);
}

bool ignores_first(const std::string& name) {
  return is_among(kIgnoring, name);
}

bool reads_number(const std::string& name) {
  return is_among(kReading, name);
}

bool is_out_argument(const c10::OperatorHandle& op, size_t position) {
  const c10::Argument& argument = op.schema().arguments()[position];
  return argument.is_out() && is_written(argument);
}

bool writes_anything(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), is_written);
}

std::vector<at::Tensor> written_tensors(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  std::vector<c10::IValue> written;
  for (size_t k = 0; k < arguments.size(); ++k) {
    if (is_written(op.schema().arguments()[k])) written.push_back(arguments[k]);
  }
  std::vector<at::Tensor> tensors;
  each_tensor(written, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

void each_tensor(const std::vector<c10::IValue>& values, const std::function<void(const at::Tensor&)>& see) {
  for (const c10::IValue& value : values) {
    levin::each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined()) see(tensor);
    });
  }
}

}  // namespace levin::onnx
