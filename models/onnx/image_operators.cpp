#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
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

Translation pad_by(const std::string& mode) {
  return [mode](OperatorCall& call) {
    call.give(call.graph().add("Pad", {call.in("self"), onnx_pads(call, "padding")}, {{"mode", mode}}));
  };
}

// The factor of each dimension of the images that the model gave; none where it gave sizes only.
std::vector<double> scale_factors(const OperatorCall& call) {
  if (call.has("scale_factors")) return call.reals("scale_factors");
  std::vector<double> factors;
  for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"}) {
    if (call.has(name)) factors.push_back(call.real(name));
  }
  return factors;
}

bool is_exact(const BatchNumber& from, const BatchNumber& to, double factor) {
  if (factor == std::floor(factor)) return to == from * static_cast<int64_t>(factor);
  return from.is_fixed() && to.is_fixed() && static_cast<double>(to.rest) == static_cast<double>(from.rest) * factor;
}

// PyTorch takes samples by the factor that it was given, and not by the ratio of the sizes, which are rounded. Such
// dimensions are resized by their factors, and the others, whose ratio of sizes is the factor, by their sizes: a
// factor in float32 may give other sizes (10 * 0.7).
struct Steps {
  std::vector<float> scales{1, 1};
  bool by_scales = false, by_sizes = false;
};

Steps steps_of(const OperatorCall& call) {
  const BatchNumbers &from = call.value("input").sizes, &to = call.result().sizes;
  const std::vector<double> factors = scale_factors(call);
  if (call.flag("align_corners") || factors.size() + 2 != from.size()) return {.by_sizes = true};
  Steps steps;
  for (size_t k = 0; k < factors.size(); ++k) {
    const BatchNumber &size = from[k + 2], &wanted = to[k + 2];
    const bool exact = is_exact(size, wanted, factors[k]);
    (exact ? steps.by_sizes : steps.by_scales) = true;
    steps.scales.push_back(exact ? 1 : static_cast<float>(factors[k]));
    if (exact || !size.is_fixed() || !wanted.is_fixed()) continue;
    if (std::floor(static_cast<double>(steps.scales.back()) * static_cast<double>(size.rest)) !=
        static_cast<double>(wanted.rest)) {
      throw NotTranslated("by a factor that float32 rounds to another size; give the size");
    }
  }
  return steps;
}

void resize(OperatorCall& call, const std::string& mode, const std::string& coordinates, Attributes attributes) {
  attributes.emplace_back("mode", mode);
  attributes.emplace_back("coordinate_transformation_mode", call.flag("align_corners") ? "align_corners" : coordinates);
  const Steps steps = steps_of(call);
  std::string images = call.in("input");
  if (steps.by_scales) {
    images = call.graph().add("Resize", {images, "", call.graph().constant(at::tensor(steps.scales))}, attributes);
  }
  if (steps.by_sizes) {
    images = call.graph().add("Resize", {images, "", "", call.graph().batch_numbers(call.result().sizes)}, attributes);
  }
  call.give(images);
}

Translation resizing(const char* mode, const char* coordinates, const Attributes& attributes) {
  return [=](OperatorCall& call) { resize(call, mode, coordinates, attributes); };
}

Translation smoothed(const char* mode, const Attributes& more) {
  Attributes attributes{{"antialias", int64_t{1}}, {"exclude_outside", int64_t{1}}};
  attributes.insert(attributes.end(), more.begin(), more.end());
  return [=](OperatorCall& call) {
    if (call.graph().opset() < 18) throw NotTranslated("needs --opset 18");
    if (call.flag("align_corners"))
      throw NotTranslated("with align_corners, which ONNX has for resizing without antialias");
    resize(call, mode, "half_pixel", attributes);
  };
}

// Values of an image at the places of a grid, which are from -1 to 1.
void grid_sample(OperatorCall& call) {
  const bool is_new = call.graph().opset() >= 20;
  if (call.rank("input") > 4 && !is_new) throw NotTranslated("of volumes needs --opset 20");
  const std::vector<std::string> modes{is_new ? "linear" : "bilinear", "nearest", is_new ? "cubic" : "bicubic"},
      paddings{"zeros", "border", "reflection"};
  call.give(call.graph().add("GridSample", {call.in("input"), call.in("grid")},
                             {{"mode", modes.at(static_cast<size_t>(call.whole_number("interpolation_mode")))},
                              {"padding_mode", paddings.at(static_cast<size_t>(call.whole_number("padding_mode")))},
                              {"align_corners", int64_t{call.flag("align_corners") ? 1 : 0}}}));
}

// (…, L, …) to (…, windows, …, size)
void unfold(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  if (call.rank("self") == 0) throw NotTranslated("of a single number");
  const int64_t dim = call.dimension("dimension"), size = call.whole_number("size");
  const std::string starts =
      graph.range({0, 0}, call.result().sizes.at(static_cast<size_t>(dim)), call.whole_number("step"));
  const std::string places = graph.add(
      "Add", {graph.add("Unsqueeze", {starts, graph.numbers({1})}), graph.constant(at::arange(size, at::kLong))});
  const std::string windows = graph.add("Gather", {call.in("self"), places}, {{"axis", dim}});
  Numbers order = order_of(call.rank("self") + 1);
  order.erase(order.begin() + dim + 1);
  order.push_back(dim + 1);
  call.give(graph.add("Transpose", {windows}, {{"perm", order}}));
}

// Two numbers, where PyTorch takes one for both.
Numbers pair(const OperatorCall& call, const std::string& argument) {
  Numbers numbers = call.whole_numbers(argument);
  if (numbers.size() == 1) numbers.push_back(numbers[0]);
  return numbers;
}

// (N, C, H, W) to (N, C kh kw, windows): rows and columns of each element of the kernel in each window.
void im2col(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  const Numbers kernel = pair(call, "kernel_size"), dilation = pair(call, "dilation"), padding = pair(call, "padding"),
                stride = pair(call, "stride");
  const auto first = static_cast<size_t>(call.rank("self")) - 2;  // of the two dimensions
  std::string x = call.in("self");
  if (padding[0] != 0 || padding[1] != 0) {
    Numbers pads(2 * first + 4, 0);
    pads[first] = pads[2 * first + 2] = padding[0];
    pads[first + 1] = pads[2 * first + 3] = padding[1];
    x = graph.add("Pad", {x, graph.numbers(pads)});
  }
  for (size_t k = 0; k < 2; ++k) {
    const int64_t room =
        call.fixed_size("self", static_cast<int64_t>(first + k)) + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1;
    const at::Tensor elements = at::arange(kernel[k], at::kLong).mul(dilation[k]).unsqueeze(1);
    const at::Tensor starts = at::arange(room / stride[k] + 1, at::kLong).mul(stride[k]);
    x = graph.add("Gather", {x, graph.constant(elements + starts)}, {{"axis", static_cast<int64_t>(first + 2 * k)}});
  }
  Numbers order = order_of(static_cast<int64_t>(first) + 4);
  std::swap(order[first + 1], order[first + 2]);
  call.give(call.reshaped(graph.add("Transpose", {x}, {{"perm", order}}), call.result().sizes));
}

// The sums of all elements that im2col takes from the same place.
void col2im(OperatorCall& call) {
  GraphBuilder& graph = call.graph();
  if (graph.opset() < 18) throw NotTranslated("needs --opset 18");
  call.check_batched("self", 1);
  const Numbers padding = pair(call, "padding");
  call.give(graph.add(
      "Col2Im",
      {call.in("self"), graph.numbers(call.whole_numbers("output_size")), graph.numbers(pair(call, "kernel_size"))},
      {{"dilations", pair(call, "dilation")},
       {"pads", Numbers{padding[0], padding[1], padding[0], padding[1]}},
       {"strides", pair(call, "stride")}}));
}

// ---- adaptive pooling ----------------------------------------------------------------------------------------------

// Window k of `out` is from floor(k in / out) to ceil((k + 1) in / out): windows of several lengths, which are
// filled up by repeating their last element.
std::string pooled_along(OperatorCall& call, const std::string& x, int64_t dim, int64_t in, int64_t out, bool is_max) {
  GraphBuilder& graph = call.graph();
  const at::ScalarType dtype = call.result().dtype;
  const int64_t longest = (in + out - 1) / out + 1;
  std::vector<int64_t> places, lengths;
  for (int64_t k = 0; k < out; ++k) {
    const int64_t start = k * in / out, end = ((k + 1) * in + out - 1) / out;
    lengths.push_back(end - start);
    for (int64_t j = 0; j < longest; ++j) places.push_back(std::min(start + j, end - 1));
  }
  const std::string windows =
      graph.add("Gather", {x, graph.constant(at::tensor(places, at::kLong).view({out, longest}))}, {{"axis", dim}});
  if (is_max) return call.reduced("ReduceMax", windows, {dim + 1}, /*keepdim=*/false);
  // (out, longest, 1, …) and (out, 1, …), for the dimensions after this one
  const Numbers behind(static_cast<size_t>(call.rank("self") - dim - 1), 1);
  Numbers mask_shape{out, longest}, count_shape{out};
  mask_shape.insert(mask_shape.end(), behind.begin(), behind.end());
  count_shape.insert(count_shape.end(), behind.begin(), behind.end());
  const at::Tensor counts = at::tensor(lengths, at::kLong);
  const at::Tensor is_inside = at::arange(longest, at::kLong) < counts.unsqueeze(1);
  const std::string inside =
      graph.add("Where", {graph.constant(is_inside.view(mask_shape)), windows, graph.number(0, dtype)});
  return graph.add("Div", {call.reduced("ReduceSum", inside, {dim + 1}, /*keepdim=*/false),
                           graph.constant(counts.to(dtype).view(count_shape))});
}

// All of a dimension is one window, equal windows are an ordinary pooling, and others are gathered.
void adaptive_pool(OperatorCall& call, size_t dims, const std::string& kind) {
  call.check_batched("self", dims);
  const BatchNumbers &from = call.value("self").sizes, &to = call.result().sizes;
  bool is_global = true, is_even = true;
  Numbers kernel;
  for (size_t k = 2; k < from.size(); ++k) {
    is_global = is_global && to[k] == BatchNumber{0, 1};
    is_even = is_even && from[k].is_fixed() && to[k].is_fixed() && to[k].rest != 0 && from[k].rest % to[k].rest == 0;
    kernel.push_back(is_even ? from[k].rest / to[k].rest : 0);
  }
  if (is_global) return call.give(call.graph().add("Global" + kind, {call.in("self")}));
  if (is_even)
    return call.give(call.graph().add(kind, {call.in("self")}, {{"kernel_shape", kernel}, {"strides", kernel}}));
  std::string x = call.in("self");
  for (size_t k = 2; k < from.size(); ++k) {
    const auto dim = static_cast<int64_t>(k);
    const bool is_max = kind == "MaxPool";
    if (from[k] == to[k]) continue;
    if (to[k] == BatchNumber{0, 1}) {
      x = call.reduced(is_max ? "ReduceMax" : "ReduceMean", x, {dim}, /*keepdim=*/true);
    } else if (from[k].is_fixed() && to[k].is_fixed()) {
      x = pooled_along(call, x, dim, from[k].rest, to[k].rest, is_max);
    } else {
      throw NotTranslated("from " + from[k].text() + " to " + to[k].text());
    }
  }
  call.give(x);
}

Translation adaptive_pool(size_t dims, const std::string& kind) {
  return [=](OperatorCall& call) { adaptive_pool(call, dims, kind); };
}

// ---- shuffles ------------------------------------------------------------------------------------------------------

// (N, C r^2, H, W) to (N, C, H r, W r)
void pixel_shuffle(OperatorCall& call) {
  if (call.rank("self") != 4) throw NotTranslated("only of batches of images");
  call.give(call.graph().add("DepthToSpace", {call.in("self")},
                             {{"blocksize", call.whole_number("upscale_factor")}, {"mode", std::string("CRD")}}));
}

// (N, C, H r, W r) to (N, C r^2, H, W)
void pixel_unshuffle(OperatorCall& call) {
  if (call.rank("self") != 4) throw NotTranslated("only of batches of images");
  const BatchNumber factor{0, call.whole_number("downscale_factor")};
  const BatchNumbers &from = call.value("self").sizes, &to = call.result().sizes;
  const std::string apart = call.reshaped(call.in("self"), {from[0], from[1], to[2], factor, to[3], factor});
  call.give(call.reshaped(call.graph().add("Transpose", {apart}, {{"perm", Numbers{0, 1, 3, 5, 2, 4}}}), to));
}

// (N, groups c, …) to (N, c groups, …)
void channel_shuffle(OperatorCall& call) {
  const BatchNumbers& sizes = call.value("self").sizes;
  const int64_t groups = call.whole_number("groups");
  BatchNumbers apart = sizes;
  apart[1] = {0, groups};
  apart.insert(apart.begin() + 2, BatchNumber{0, call.fixed_size("self", 1) / groups});
  Numbers order = order_of(std::ssize(apart));
  std::swap(order[1], order[2]);
  call.give(
      call.reshaped(call.graph().add("Transpose", {call.reshaped(call.in("self"), apart)}, {{"perm", order}}), sizes));
}

}  // namespace

TranslationRows image_translations() {
  return {{convolution, "conv1d conv2d conv3d convolution"},
          {transposed_convolution, "conv_transpose1d conv_transpose2d conv_transpose3d"},
          {max_pool<1>, "max_pool1d max_pool1d_with_indices"},
          {max_pool<2>, "max_pool2d max_pool2d_with_indices"},
          {max_pool<3>, "max_pool3d max_pool3d_with_indices"},
          {average_pool<1>, "avg_pool1d"},
          {average_pool<2>, "avg_pool2d"},
          {average_pool<3>, "avg_pool3d"},
          {constant_pad, "constant_pad_nd"},
          {pad_by("reflect"), "reflection_pad1d reflection_pad2d reflection_pad3d"},
          {pad_by("edge"), "replication_pad1d replication_pad2d replication_pad3d"},
          {resizing("nearest", "asymmetric", {{"nearest_mode", std::string("floor")}}),
           "upsample_nearest1d upsample_nearest2d upsample_nearest3d"},
          // By the distances of the elements' centers.
          {resizing("nearest", "half_pixel", {{"nearest_mode", std::string("round_prefer_ceil")}}),
           "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"},
          {resizing("linear", "half_pixel", {}), "upsample_linear1d upsample_bilinear2d upsample_trilinear3d"},
          // Keys, Cubic convolution interpolation for digital image processing, 1981, with PyTorch's coefficients.
          {resizing("cubic", "half_pixel", {{"cubic_coeff_a", -0.75}}), "upsample_bicubic2d"},
          {smoothed("linear", {}), "_upsample_bilinear2d_aa"},
          {smoothed("cubic", {{"cubic_coeff_a", -0.5}}), "_upsample_bicubic2d_aa"},
          {grid_sample, "grid_sampler_2d grid_sampler_3d"},
          {unfold, "unfold"},
          {im2col, "im2col"},
          {col2im, "col2im"},
          {adaptive_pool(1, "AveragePool"), "adaptive_avg_pool1d"},
          {adaptive_pool(2, "AveragePool"), "adaptive_avg_pool2d _adaptive_avg_pool2d"},
          {adaptive_pool(3, "AveragePool"), "_adaptive_avg_pool3d adaptive_avg_pool3d"},
          {adaptive_pool(1, "MaxPool"), "adaptive_max_pool1d"},
          {adaptive_pool(2, "MaxPool"), "adaptive_max_pool2d"},
          {adaptive_pool(3, "MaxPool"), "adaptive_max_pool3d"},
          {pixel_shuffle, "pixel_shuffle"},
          {pixel_unshuffle, "pixel_unshuffle"},
          {channel_shuffle, "channel_shuffle native_channel_shuffle"}};
}

}  // namespace levin::onnx
