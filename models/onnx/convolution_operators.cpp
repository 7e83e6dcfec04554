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

void check_batched(const OperatorCall& call, const std::string& input, size_t kernel) {
  if (call.rank(input) != static_cast<int64_t>(kernel) + 2) throw NotTranslated("only of batches (N, C, …)");
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
  check_batched(call, "input", kernel.size());
  Attributes attributes = kernel_attributes(call, kernel.size());
  attributes[0].second = kernel;
  attributes.emplace_back("pads", both_sides(per_dimension(call, "padding", kernel.size(), Numbers(kernel.size(), 0))));
  attributes.emplace_back("output_padding",
                          per_dimension(call, "output_padding", kernel.size(), Numbers(kernel.size(), 0)));
  call.give(call.graph().add("ConvTranspose", with_bias(call), attributes));
}

void convolution(OperatorCall& call) {
  if (call.flag("transposed")) return transposed_convolution(call);
  const Numbers kernel = kernel_of(call);
  check_batched(call, "input", kernel.size());
  Attributes attributes = kernel_attributes(call, kernel.size());
  attributes[0].second = kernel;
  const std::string padding = call.text("padding", "");
  if (padding.empty()) {
    attributes.emplace_back("pads",
                            both_sides(per_dimension(call, "padding", kernel.size(), Numbers(kernel.size(), 0))));
  } else if (padding == "same") {
    attributes.emplace_back("auto_pad", std::string("SAME_UPPER"));  // an odd element is padded at the end
  }
  call.give(call.graph().add("Conv", with_bias(call), attributes));
}

// ---- pooling -------------------------------------------------------------------------------------------------------

Attributes pool_attributes(const OperatorCall& call, size_t dims) {
  const Numbers kernel = per_dimension(call, "kernel_size", dims, {});
  check_batched(call, "self", dims);
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
  if (call.has("divisor_override")) throw NotTranslated("with divisor_override");
  Attributes attributes = pool_attributes(call, kDims);
  attributes.emplace_back("count_include_pad", int64_t{call.flag("count_include_pad") ? 1 : 0});
  call.give(call.graph().add("AveragePool", {call.in("self")}, attributes));
}

// To sizes that divide the input's: a pooling with equal windows.
void adaptive_pool(OperatorCall& call, size_t dims, const std::string& kind) {
  check_batched(call, "self", dims);
  const BatchNumbers &from = call.value("self").sizes, &to = call.result().sizes;
  Numbers kernel;
  bool is_global = true;
  for (size_t k = 2; k < from.size(); ++k) {
    const int64_t in = from[k].rest, out = to[k].rest;
    const bool is_one = to[k] == BatchNumber{0, 1};
    if (!is_one && (!from[k].is_fixed() || !to[k].is_fixed() || out == 0 || in % out != 0)) {
      throw NotTranslated("from " + from[k].text() + " to " + to[k].text() + ": the second must divide the first");
    }
    is_global = is_global && is_one;
    kernel.push_back(out == 0 ? 0 : in / out);
  }
  for (size_t k = 2; k < from.size() && !is_global; ++k) {
    if (!from[k].is_fixed()) throw NotTranslated("from " + from[k].text() + ", together with a fixed size");
  }
  if (is_global) return call.give(call.graph().add("Global" + kind, {call.in("self")}));
  call.give(call.graph().add(kind, {call.in("self")}, {{"kernel_shape", kernel}, {"strides", kernel}}));
}

template <size_t kDims>
void adaptive_average_pool(OperatorCall& call) {
  adaptive_pool(call, kDims, "AveragePool");
}

template <size_t kDims>
void adaptive_max_pool(OperatorCall& call) {
  adaptive_pool(call, kDims, "MaxPool");
}

// ---- resizing and padding ------------------------------------------------------------------------------------------

void resize(OperatorCall& call, const std::string& mode) {
  const std::string input = call.has("input") ? "input" : "self";
  Attributes attributes{{"mode", mode}};
  const std::string coordinates = mode == "nearest"            ? "asymmetric"
                                  : call.flag("align_corners") ? "align_corners"
                                                               : "half_pixel";
  attributes.emplace_back("coordinate_transformation_mode", coordinates);
  if (mode == "nearest") attributes.emplace_back("nearest_mode", std::string("floor"));
  if (mode == "cubic") attributes.emplace_back("cubic_coeff_a", -0.75);  // PyTorch's, of Keys' kernel
  call.give(call.graph().add("Resize", {call.in(input), "", "", call.graph().batch_numbers(call.result().sizes)},
                             attributes));
}

void upsample_nearest(OperatorCall& call) {
  resize(call, "nearest");
}
void upsample_linear(OperatorCall& call) {
  resize(call, "linear");
}
void upsample_cubic(OperatorCall& call) {
  resize(call, "cubic");
}

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

// (N, C r^2, H, W) to (N, C, H r, W r)
void pixel_shuffle(OperatorCall& call) {
  if (call.rank("self") != 4) throw NotTranslated("only of batches of images");
  call.give(call.graph().add("DepthToSpace", {call.in("self")},
                             {{"blocksize", call.whole_number("upscale_factor")}, {"mode", std::string("CRD")}}));
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
          {"adaptive_avg_pool1d", adaptive_average_pool<1>},
          {"adaptive_avg_pool2d", adaptive_average_pool<2>},
          {"_adaptive_avg_pool2d", adaptive_average_pool<2>},
          {"_adaptive_avg_pool3d", adaptive_average_pool<3>},
          {"adaptive_avg_pool3d", adaptive_average_pool<3>},
          {"adaptive_max_pool1d", adaptive_max_pool<1>},
          {"adaptive_max_pool2d", adaptive_max_pool<2>},
          {"adaptive_max_pool3d", adaptive_max_pool<3>},
          {"upsample_nearest1d", upsample_nearest},
          {"upsample_nearest2d", upsample_nearest},
          {"upsample_nearest3d", upsample_nearest},
          {"upsample_linear1d", upsample_linear},
          {"upsample_bilinear2d", upsample_linear},
          {"upsample_trilinear3d", upsample_linear},
          {"upsample_bicubic2d", upsample_cubic},
          {"constant_pad_nd", constant_pad},
          {"reflection_pad1d", reflection_pad},
          {"reflection_pad2d", reflection_pad},
          {"reflection_pad3d", reflection_pad},
          {"replication_pad1d", replication_pad},
          {"replication_pad2d", replication_pad},
          {"replication_pad3d", replication_pad},
          {"pixel_shuffle", pixel_shuffle}};
}

}  // namespace levin::onnx
