#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <numeric>

#include "levin/models/onnx/operators.h"

namespace levin::onnx {

namespace {

using Numbers = std::vector<int64_t>;

Numbers order_of(size_t rank) {
  Numbers order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
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
  Numbers order = order_of(static_cast<size_t>(call.rank("self")) + 1);
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
  Numbers order = order_of(first + 4);
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

// Window k of `out` is from floor(k in / out) to ceil((k + 1) in / out): windows of several lengths, of which each
// place behind the last is the last again.
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
  // (out, longest, 1, …) and (out, 1, …), for the dimensions behind this one
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

template <size_t kDims>
void adaptive_average_pool(OperatorCall& call) {
  adaptive_pool(call, kDims, "AveragePool");
}

template <size_t kDims>
void adaptive_max_pool(OperatorCall& call) {
  adaptive_pool(call, kDims, "MaxPool");
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
  Numbers order = order_of(apart.size());
  std::swap(order[1], order[2]);
  call.give(
      call.reshaped(call.graph().add("Transpose", {call.reshaped(call.in("self"), apart)}, {{"perm", order}}), sizes));
}

}  // namespace

Translations window_translations() {
  return {{"unfold", unfold},
          {"im2col", im2col},
          {"col2im", col2im},
          {"adaptive_avg_pool1d", adaptive_average_pool<1>},
          {"adaptive_avg_pool2d", adaptive_average_pool<2>},
          {"_adaptive_avg_pool2d", adaptive_average_pool<2>},
          {"_adaptive_avg_pool3d", adaptive_average_pool<3>},
          {"adaptive_avg_pool3d", adaptive_average_pool<3>},
          {"adaptive_max_pool1d", adaptive_max_pool<1>},
          {"adaptive_max_pool2d", adaptive_max_pool<2>},
          {"adaptive_max_pool3d", adaptive_max_pool<3>},
          {"pixel_shuffle", pixel_shuffle},
          {"pixel_unshuffle", pixel_unshuffle},
          {"channel_shuffle", channel_shuffle},
          {"native_channel_shuffle", channel_shuffle}};
}

}  // namespace levin::onnx
