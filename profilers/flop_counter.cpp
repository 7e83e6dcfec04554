#include "levin/profilers/flop_counter.h"

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/core/options/error.h"

namespace levin {

namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;
using Formula = int64_t (*)(Inputs);

std::atomic<bool> counting = false;
std::atomic<int64_t> counted = 0;
thread_local int depth = 0;  // of counted operators: what they call counts within them

c10::IntArrayRef shape(Inputs inputs, size_t index) {
  return inputs[index].toTensor().sizes();
}

int64_t product(c10::IntArrayRef sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

// (…, m, k) times (…, k, n): 2 m k n for each matrix.
int64_t matrix_product(c10::IntArrayRef a, c10::IntArrayRef b) {
  return 2 * product(a) * b.back();
}

int64_t mm(Inputs inputs) {
  return matrix_product(shape(inputs, 0), shape(inputs, 1));
}

// The first input is the addend.
int64_t addmm(Inputs inputs) {
  return matrix_product(shape(inputs, 1), shape(inputs, 2));
}

// Each of the `positions` (of the output; transposed: of the input) of every sample meets the whole kernel.
// weight: (out, in / groups, kernel…), transposed: (in, out / groups, kernel…)
int64_t convolution_product(c10::IntArrayRef positions, c10::IntArrayRef weight) {
  return 2 * positions[0] * product(positions.slice(2)) * product(weight);
}

int64_t output_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (input + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

// aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
int64_t convolution(Inputs inputs) {
  const auto input = shape(inputs, 0), weight = shape(inputs, 1);
  if (inputs[6].toBool()) return convolution_product(input, weight);
  const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(), dilation = inputs[5].toIntVector();
  std::vector<int64_t> output = input.vec();
  for (size_t i = 2; i < output.size(); ++i) {
    // One number may stand for all dimensions.
    auto of = [&](const std::vector<int64_t>& list) { return list.size() == 1 ? list[0] : list[i - 2]; };
    output[i] = output_size(input[i], weight[i], of(stride), of(padding), of(dilation));
  }
  return convolution_product(output, weight);
}

// aten::convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
// output_padding, groups, output_mask): the input's and the weight's gradients each cost what forward did.
int64_t convolution_backward(Inputs inputs) {
  const auto positions = inputs[7].toBool() ? shape(inputs, 1) : shape(inputs, 0);
  const auto mask = inputs[10].toBoolList();
  return (int64_t{mask[0]} + int64_t{mask[1]}) * convolution_product(positions, shape(inputs, 2));
}

// query: (batch, heads, q, d), key: (batch, heads, k, d), value: (batch, heads, k, e). A mask saves nothing.
int64_t attention_product(c10::IntArrayRef query, c10::IntArrayRef key, int64_t times_d, c10::IntArrayRef value,
                          int64_t times_e) {
  const int64_t scores = product(query) / query.back() * key[key.size() - 2];
  return 2 * scores * (times_d * query.back() + times_e * value.back());
}

// Scores and their product with the values.
int64_t attention(Inputs inputs) {
  return attention_product(shape(inputs, 0), shape(inputs, 1), 1, shape(inputs, 2), 1);
}

// Scores once more, then the gradients of query and key, of scores and values. (grad_output, query, key, value, …)
int64_t attention_backward(Inputs inputs) {
  return attention_product(shape(inputs, 1), shape(inputs, 2), 3, shape(inputs, 3), 2);
}

Formula formula_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Formula> formulas{
      {"aten::mm", mm},
      {"aten::bmm", mm},
      {"aten::addmm", addmm},
      {"aten::baddbmm", addmm},
      {"aten::_addmm_activation", addmm},
      {"aten::convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention", attention},
      {"aten::_scaled_dot_product_efficient_attention", attention},
      {"aten::_scaled_dot_product_cudnn_attention", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::_scaled_dot_product_flash_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention_backward},
  };
  const auto found = formulas.find(name);
  return found == formulas.end() ? nullptr : found->second;
}

struct CountedCall final : at::ObserverContext {
  CountedCall() { ++depth; }
  ~CountedCall() override { --depth; }
};

std::unique_ptr<at::ObserverContext> count_call(const at::RecordFunction& call) {
  if (depth > 0) return nullptr;
  const Formula formula = formula_of(call.name());
  if (formula == nullptr) return nullptr;
  counted += formula(call.inputs());
  return std::make_unique<CountedCall>();
}

}  // namespace

FlopCounter::FlopCounter() : handle_(0) {
  if (counting.exchange(true)) throw Error("FlopCounter: another counter lives. Let it go first.");
  counted = 0;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

FlopCounter::~FlopCounter() {
  at::removeCallback(handle_);
  counting = false;
}

int64_t FlopCounter::flops() const {
  return counted;
}

}  // namespace levin
