// levin export --config run.yaml --format onnx --output model.onnx: a run's model as a file for other programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/models/onnx_export.h"

namespace levin {

// --- The options of levin export.

/// onnx: a graph for onnxruntime; safetensors: parameters and buffers by name; hf: a folder for from_pretrained.
enum class ExportFormat { onnx, safetensors, hf };
template <>
struct EnumNames<ExportFormat> {
  static constexpr EnumName<ExportFormat> names[] = {
      {"onnx", ExportFormat::onnx}, {"safetensors", ExportFormat::safetensors}, {"hf", ExportFormat::hf}};
};

/// What becomes the graph.
enum class ExportMethod { automatic, forward, predict_step };
template <>
struct EnumNames<ExportMethod> {
  static constexpr EnumName<ExportMethod> names[] = {{"auto", ExportMethod::automatic},
                                                     {"forward", ExportMethod::forward},
                                                     {"predict_step", ExportMethod::predict_step}};
};

/// Options of "levin export".
struct ExportOptions {
  std::string output = "";
  std::optional<ExportFormat> format = std::nullopt;
  bool overwrite = false;
  ExportMethod method = ExportMethod::automatic;
  int64_t opset = 18;
  bool fixed_batch = false;
  bool dynamic_length = false;
  bool external_data = false;
  std::string input_names = "";
  std::string output_name = "";

  template <class = void>
  static auto fields() {
    using O = ExportOptions;
    return levin::fields(
        field("output", &O::output, "the file to write, or for hf the folder").not_empty(),
        field("format", &O::format,
              "a graph for onnxruntime, weights by name, or a folder of Hugging Face's; null: by the output's ending, "
              ".onnx or .safetensors, and onnx without one"),
        field("overwrite", &O::overwrite, "replace the output if it is there already"),
        field(
            "method", &O::method,
            "onnx: what becomes the graph: forward of the batch's first tensor, or predict_step of all; auto: forward, "
            "or predict_step where the module has no forward; of Hugging Face's models the logits"),
        field("opset", &O::opset, "onnx: version of the operators").min(kOldestOpset).max(kNewestOpset),
        field("fixed_batch", &O::fixed_batch, "onnx: take batches of the data's size only, instead of any size"),
        field("dynamic_length", &O::dynamic_length,
              "onnx: take samples of any length too: the inputs' second dimension, such as tokens"),
        field("external_data", &O::external_data,
              "onnx: write the weights to OUTPUT.data next to the file; always done from 2 GiB on"),
        field("input_names", &O::input_names,
              "onnx: names of the inputs, separated by commas: of all inputs, or of the inputs that the output depends "
              "on; \"\": "
              "the batch's, or input"),
        field("output_name", &O::output_name, "onnx: name of the output; \"\": output, or logits"));
  }
};

/// `arguments` follow "levin export": its own options and the options of a run. Returns kExitOk, or kExitBadConfig for
/// mistakes in them; throws Error where the run or the export fails.
int run_export(const std::vector<std::string>& arguments, int width);

}  // namespace levin
