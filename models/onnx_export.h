// Models as files of ONNX, which onnxruntime and other programs run without Levin.
//
//   levin::export_onnx("model.onnx", *module, {{"input", images}}, {.opset = 18});
//   levin::export_onnx("model.onnx", *net, [&](const auto& x) { return std::vector{net->forward(x[0])}; },
//                      {{"input", images}});
//
// The model runs, and the operators that it calls become the graph: conditions of C++ are decided as the example
// decides them. Parameters and buffers have their names in the file.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

/// The oldest and the newest version of ONNX's operators that a graph may use.
inline constexpr int64_t kOldestOpset = 17;
inline constexpr int64_t kNewestOpset = 22;

/// Options of export_onnx.
struct OnnxOptions {
  int64_t opset = 18;
  bool fixed_batch = false;
  bool dynamic_length = false;
  bool external_data = false;
  std::vector<std::string> input_names = {};
  std::vector<std::string> output_names = {"output"};

  template <class = void>
  static auto fields() {
    using O = OnnxOptions;
    return levin::fields(
        field("opset", &O::opset, "version of ONNX's operators").min(kOldestOpset).max(kNewestOpset),
        field("fixed_batch", &O::fixed_batch, "take batches of the example's size only, instead of any size"),
        field("dynamic_length", &O::dynamic_length,
              "take samples of any length too: the inputs' second dimension, such as tokens"),
        field("external_data", &O::external_data,
              "write the weights to PATH.data instead of the file; always so from 2 GiB on"),
        field("input_names", &O::input_names,
              "names of all inputs, or of the inputs that an output depends on, in their order; none: the example's"),
        field("output_names", &O::output_names, "names of the outputs, in their order").not_empty());
  }
};

/// What export_onnx has written.
struct OnnxReport {
  std::vector<std::string> inputs = {};  // each with type and shape: "input: float32 (batch, 784)"
  std::vector<std::string> outputs = {};
  int64_t nodes = 0;
  uint64_t bytes = 0;  // of the weights in the file
};

/// Tensors with the names of a graph's inputs; samples along the first dimension.
using OnnxExample = std::vector<std::pair<std::string, at::Tensor>>;
using OnnxForward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Writes what `forward` computes of the inputs, which it gets in the example's order, on the CPU and in inference
/// mode; the module's parameters and buffers become the graph's weights. Puts the module into evaluation mode for the
/// time, and runs it three times, with 2, 3 and 5 samples of the example (repeated where it has fewer); with
/// fixed_batch once. Weights of 2 GiB and more are written to `path`.data. Throws ConfigError for
/// options out of range and for names that do not fit the inputs or outputs, and Error where the batch size changes
/// what is computed, for operators without a translation (all at once), and naming a path that cannot be written.
OnnxReport export_onnx(const std::string& path, torch::nn::Module& module, const OnnxForward& forward,
                       const OnnxExample& example, const OnnxOptions& options = {});

/// forward() of the module, which takes one tensor.
OnnxReport export_onnx(const std::string& path, LightningModule& module, const OnnxExample& example,
                       const OnnxOptions& options = {});

}  // namespace levin
