#include <algorithm>
#include <limits>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

using Numbers = std::vector<int64_t>;

// One number for each dimension of the kernel where PyTorch takes one for all; `otherwise` where none is given.
Numbers per_dimension(const OperatorCall& call, const std::string& argument, size_t dims, const Numbers& otherwise) {
  Numbers numbers = call.has(argument) ? call.whole_numbers(argument) : Numbers{};
  if (numbers.empty()) return otherwise;
  if (numbers.size() == 1) numbers.resize(dims, numbers[0]);
  return numbers;
}

Numbers both_sides(const Numbers& pads) {
  Numbers both = pads;
  both.insert(both.end(), pads.begin(), pads.end());
  return both;
}

std::vector<std::string> with_bias(OperatorCall& call) {
  std::vector<std::string> inputs{call.in("input"), call.in("weight")};
  if (call.has("bias")) inputs.push_back(call.in("bias"));
  return inputs;
}

Attributes kernel_attributes(const OperatorCall& call, size_t dims) {
  return {{"kernel_shape", Numbers()},
          {"strides", per_dimension(call, "stride", dims, Numbers(dims, 1))},
          {"dilations", per_dimension(call, "dilation", dims, Numbers(dims, 1))},
          {"group", call.whole_number("groups", 1)}};
}

Numbers kernel_of(const OperatorCall& call) {
  const BatchNumbers& weight = call.value("weight").sizes;
  Numbers kernel;
  for (size_t k = 2; k < weight.size(); ++k) kernel.push_back(weight[k].rest);
  return kernel;
}

void transposed_convolution(OperatorCall& call) {
  const Numbers kernel = kernel_of(call);
  call.check_batched("input", kernel.size());
  Attributes attributes = kernel_attributes(call, kernel.size());
  attributes[0].second = kernel;
  attributes.emplace_back("pads", both_sides(per_dimension(call, "padding", kernel.size(), Numbers(kernel.size(), 0))));
  attributes.emplace_back("output_padding",
                          per_dimension(call, "output_padding", kernel.size(), Numbers(kernel.size(), 0)));
  call.give(call.graph().add("ConvTranspose", with_bias(call), attributes));
}

// As many elements more as the kernel takes away; an odd one is padded at the end.
Numbers same_padding(const Numbers& kernel, const Numbers& dilation) {
  Numbers before, after;
  for (size_t k = 0; k < kernel.size(); ++k) {
    const int64_t more = dilation[k] * (kernel[k] - 1);
    before.push_back(more / 2);
    after.push_back(more - more / 2);
  }
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

void convolution(OperatorCall& call) {
  if (call.flag("transposed")) return transposed_convolution(call);
  const Numbers kernel = kernel_of(call);
  call.check_batched("input", kernel.size());
  Attributes attributes = kernel_attributes(call, kernel.size());
  attributes[0].second = kernel;
  const std::string padding = call.text("padding", "");
  if (padding.empty()) {
    attributes.emplace_back("pads",
                            both_sides(per_dimension(call, "padding", kernel.size(), Numbers(kernel.size(), 0))));
  } else if (padding == "same") {
    attributes.emplace_back(
        "pads", same_padding(kernel, per_dimension(call, "dilation", kernel.size(), Numbers(kernel.size(), 1))));
  }
  call.give(call.graph().add("Conv", with_bias(call), attributes));
}

// ---- pooling -------------------------------------------------------------------------------------------------------

Attributes pool_attributes(const OperatorCall& call, size_t dims) {
  const Numbers kernel = per_dimension(call, "kernel_size", dims, {});
  call.check_batched("self", dims);
  return {{"kernel_shape", kernel},
          {"strides", per_dimension(call, "stride", dims, kernel)},
          {"pads", both_sides(per_dimension(call, "padding", dims, Numbers(dims, 0)))},
          {"ceil_mode", int64_t{call.flag("ceil_mode") ? 1 : 0}}};
}

template <size_t kDims>
void max_pool(OperatorCall& call) {
  Attributes attributes = pool_attributes(call, kDims);
  attributes.emplace_back("dilations", per_dimension(call, "dilation", kDims, Numbers(kDims, 1)));
  call.give(call.graph().add("MaxPool", {call.in("self")}, attributes));
}

template <size_t kDims>
void average_pool(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  Attributes attributes = pool_attributes(call, kDims);
  const bool has_divisor = call.has("divisor_override");
  if (has_divisor && call.flag("ceil_mode")) throw NotTranslated("with divisor_override and ceil_mode");
  attributes.emplace_back("count_include_pad", int64_t{call.flag("count_include_pad") || has_divisor ? 1 : 0});
  const std::string means = graph.add("AveragePool", {call.in("self")}, attributes);
  if (!has_divisor) return call.give(means);
  double elements = 1;
  for (const int64_t size : per_dimension(call, "kernel_size", kDims, {})) elements *= static_cast<double>(size);
  call.give(graph.add("Mul", {means, graph.number(elements / call.real("divisor_override"), call.result().dtype)}));
}

// ---- padding -------------------------------------------------------------------------------------------------------

// PyTorch pads from the last dimension backwards: (left, right, top, bottom, …).
std::string onnx_pads(OperatorCall& call, const std::string& argument) {
  const BatchNumbers& given = call.batch_numbers(argument);
  const auto rank = static_cast<size_t>(call.rank("self"));
  BatchNumbers pads(2 * rank);
  for (size_t k = 0; 2 * k + 1 < given.size(); ++k) {
    pads[rank - 1 - k] = given[2 * k];
    pads[2 * rank - 1 - k] = given[2 * k + 1];
  }
  return call.graph().batch_numbers(pads);
}

void constant_pad(OperatorCall& call) {
  const at::ScalarType dtype = call.result().dtype;
  const std::string value = call.has("value") ? call.in("value", dtype) : call.graph().number(0, dtype);
  call.give(call.graph().add("Pad", {call.in("self"), onnx_pads(call, "pad"), value}));
}

void pad_by(OperatorCall& call, const std::string& mode) {
  call.give(call.graph().add("Pad", {call.in("self"), onnx_pads(call, "padding")}, {{"mode", mode}}));
}

void reflection_pad(OperatorCall& call) {
  pad_by(call, "reflect");
}
void replication_pad(OperatorCall& call) {
  pad_by(call, "edge");
}

}  // namespace

Translations convolution_translations() {
  return {{"conv1d", convolution},
          {"conv2d", convolution},
          {"conv3d", convolution},
          {"convolution", convolution},
          {"conv_transpose1d", transposed_convolution},
          {"conv_transpose2d", transposed_convolution},
          {"conv_transpose3d", transposed_convolution},
          {"max_pool1d", max_pool<1>},
          {"max_pool2d", max_pool<2>},
          {"max_pool3d", max_pool<3>},
          {"max_pool1d_with_indices", max_pool<1>},
          {"max_pool2d_with_indices", max_pool<2>},
          {"max_pool3d_with_indices", max_pool<3>},
          {"avg_pool1d", average_pool<1>},
          {"avg_pool2d", average_pool<2>},
          {"avg_pool3d", average_pool<3>},
          {"constant_pad_nd", constant_pad},
          {"reflection_pad1d", reflection_pad},
          {"reflection_pad2d", reflection_pad},
          {"reflection_pad3d", reflection_pad},
          {"replication_pad1d", replication_pad},
          {"replication_pad2d", replication_pad},
          {"replication_pad3d", replication_pad}};
}

}  // namespace levin::onnx
