// Exports many small models, for onnx_peers_test.py to compare onnxruntime with what Levin computes:
//
//   onnx_program FOLDER OPSET
//
// writes FOLDER/NAME.onnx and FOLDER/NAME.safetensors, which holds inputs and outputs for batches of several sizes
// ("7/input_0", "7/output_1"), and prints a line of JSON for each: its name, and the error if there was one.
#include <torch/torch.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/process/main_guard.h"
#include "levin/models/onnx_export.h"
#include "models/onnx_cases.h"
#include "support/paths.h"

namespace onnx_program {
namespace {

using levin::test::OnnxCase;

std::vector<std::string> numbered(const std::string& name, size_t count) {
  std::vector<std::string> names;
  for (size_t k = 0; k < count; ++k) names.push_back(name + "_" + std::to_string(k));
  return names;
}

// Samples that differ from the example: scaled if they are real numbers, and of a different length where
// the graph takes any.
std::vector<at::Tensor> batch_of(const OnnxCase& one, int64_t samples) {
  std::vector<at::Tensor> batch;
  const at::Tensor& first = one.example.front();
  for (const at::Tensor& example : one.example) {
    at::Tensor drawn = example.index_select(0, at::randint(0, example.size(0), {samples}, at::kLong));
    if (one.any_length) {
      drawn = drawn.index_select(1, at::arange(first.size(1) - 2 + samples % 4, at::kLong).remainder(first.size(1)));
    }
    std::vector<int64_t> sizes(static_cast<size_t>(drawn.dim()), 1);
    sizes[0] = samples;
    batch.push_back(drawn.is_floating_point() ? drawn * (0.5 + at::rand(sizes)) : drawn);
  }
  return batch;
}

void write_case(const OnnxCase& one, const std::string& folder, int64_t opset) {
  const auto inputs = numbered("input", one.example.size());
  levin::OnnxExample example;
  for (size_t k = 0; k < inputs.size(); ++k) example.emplace_back(inputs[k], one.example[k]);
  one.module->eval();
  const torch::NoGradGuard no_grad;
  const auto outputs = numbered("output", one.forward(one.example).size());
  levin::export_onnx(folder + "/" + one.name + ".onnx", *one.module, one.forward, example,
                     {.opset = opset, .dynamic_length = one.any_length, .output_names = outputs});
  std::map<std::string, at::Tensor> tensors;
  for (const int64_t samples : {1, 2, 7}) {
    const auto batch = batch_of(one, samples);
    const std::string prefix = std::to_string(samples) + "/";
    for (size_t k = 0; k < batch.size(); ++k) tensors[prefix + inputs[k]] = batch[k].contiguous();
    const auto results = one.forward(batch);
    for (size_t k = 0; k < results.size(); ++k) tensors[prefix + outputs[k]] = results[k].contiguous();
  }
  levin::write_safetensors(folder + "/" + one.name + ".safetensors", tensors);
}

}  // namespace

int run_program(int argc, char** argv) {
  return levin::main_guard([&] {
    const std::string folder = argc > 2 ? argv[1] : ".";
    const int64_t opset = argc > 2 ? std::stoll(argv[2]) : 18;
    torch::manual_seed(1);
    auto cases = levin::test::operator_cases();
    for (auto& one : levin::test::placing_cases()) cases.push_back(std::move(one));
    for (auto& one : levin::test::layer_cases()) cases.push_back(std::move(one));
    for (auto& one : levin::test::pretrained_cases(levin::test::source_dir() + "/tests/models/data/"))
      cases.push_back(std::move(one));
    for (const OnnxCase& one : cases) {
      nlohmann::json line{{"name", one.name}};
      try {
        write_case(one, folder, opset);
      } catch (const std::exception& error) {
        line["error"] = error.what();
      }
      std::cout << line.dump() << std::endl;
    }
  });
}

}  // namespace onnx_program
