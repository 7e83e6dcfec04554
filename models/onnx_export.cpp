#include "levin/models/onnx_export.h"

#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/models/onnx/graph.h"
#include "levin/models/onnx/operators.h"
#include "levin/models/onnx/program.h"

namespace levin {

namespace {

constexpr int64_t kShortest = 4;  // of an example whose length is varied

std::string shape_of(const onnx::Port& port) {
  std::string text;
  for (const onnx::BatchNumber& size : port.sizes) text += (text.empty() ? "" : ", ") + size.text();
  return "(" + text + ")";
}

std::string type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kLong: return "int64";
    case at::kInt: return "int32";
    case at::kShort: return "int16";
    case at::kChar: return "int8";
    case at::kByte: return "uint8";
    case at::kBool: return "bool";
    default: return c10::toString(dtype);
  }
}

OnnxReport report_of(const onnx::Graph& graph) {
  OnnxReport report{.nodes = static_cast<int64_t>(graph.nodes.size())};
  const auto described = [](const onnx::Port& port) {
    return port.name + ": " + type_of(port.dtype) + " " + shape_of(port);
  };
  for (const onnx::Port& port : graph.inputs) report.inputs.push_back(described(port));
  for (const onnx::Port& port : graph.outputs) report.outputs.push_back(described(port));
  for (const auto& [name, tensor] : graph.initializers) report.bytes += tensor.nbytes();
  return report;
}

// In evaluation mode for as long as it lives; then each submodule is again in the mode it had.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    for (const auto& part : module.modules(/*include_self=*/false)) modes_.emplace_back(part, part->is_training());
    module.eval();
  }
  ~EvaluationMode() {
    module_.train(was_training_);
    for (const auto& [part, was_training] : modes_) {  // parents come before their children, and train() reaches both
      if (part->is_training() != was_training) part->train(was_training);
    }
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_ = {};
};

void check_example(const OnnxExample& example, const OnnxOptions& options) {
  if (example.empty()) throw Error("export_onnx: the example has no input. Give one with at least one sample.");
  for (const auto& [name, tensor] : example) {
    const bool fits =
        tensor.defined() && tensor.dim() > 0 && tensor.size(0) > 0 && tensor.size(0) == example.front().second.size(0);
    if (!fits) {
      throw Error("export_onnx: input \"" + name + "\" must hold samples along its first dimension, as many as \"" +
                  example.front().first + "\", at least one.");
    }
  }
  if (!options.dynamic_length) return;
  if (options.fixed_batch) throw ConfigError("OnnxOptions.dynamic_length: excludes fixed_batch. Drop one of them.");
  const at::Tensor& first = example.front().second;
  if (first.dim() < 2 || first.size(1) < kShortest) {
    throw ConfigError("OnnxOptions.dynamic_length: the first input must have a second dimension of at least " +
                      std::to_string(kShortest) + ", got " + shape_text(first.sizes()) + ".");
  }
}

onnx::TraceRequest request_of(torch::nn::Module& module, const OnnxForward& forward, const OnnxExample& example,
                              const OnnxOptions& options) {
  onnx::TraceRequest request;
  for (const auto& item : module.named_parameters()) {
    request.parameters.emplace_back(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) request.parameters.emplace_back(item.key(), item.value());
  request.inputs = example;
  request.forward = forward;
  request.dynamic_batch = !options.fixed_batch;
  request.dynamic_length = options.dynamic_length;
  request.is_whole = [](const std::string& name) { return onnx::translations().contains(name); };
  return request;
}

void check_devices(const onnx::TraceRequest& request) {
  for (const auto& tensors : {request.parameters, request.inputs}) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.is_cpu()) continue;
      throw Error("export_onnx: " + name + " is on " + tensor.device().str() +
                  ". Move the module and the example to the CPU: module.to(torch::kCPU).");
    }
  }
}

void check_outputs(const onnx::Program& program, const std::vector<std::string>& names) {
  if (program.outputs.size() == names.size()) return;
  throw ConfigError("OnnxOptions.output_names: there are " + std::to_string(names.size()) + " names for " +
                    std::to_string(program.outputs.size()) + " outputs.");
}

}  // namespace

OnnxReport export_onnx(const std::string& path, torch::nn::Module& module, const OnnxForward& forward,
                       const OnnxExample& example, const OnnxOptions& given) {
  const OnnxOptions options = checked(given, "OnnxOptions");
  check_example(example, options);
  const EvaluationMode evaluation(module);
  const onnx::TraceRequest request = request_of(module, forward, example, options);
  check_devices(request);
  const onnx::Program program = onnx::trace_program(request);
  check_outputs(program, options.output_names);
  const onnx::Graph graph = onnx::make_graph(program, {options.input_names, options.output_names}, options.opset);
  onnx::write_graph(path, graph, options.external_data ? 0 : onnx::kMaxFileBytes);
  return report_of(graph);
}

OnnxReport export_onnx(const std::string& path, LightningModule& module, const OnnxExample& example,
                       const OnnxOptions& options) {
  const auto forward = [&](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{module.forward(inputs.at(0))};
  };
  return export_onnx(path, module, forward, example, options);
}

}  // namespace levin
