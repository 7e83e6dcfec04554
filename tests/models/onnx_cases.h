// Models that onnx_program exports, each with an example of its inputs.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace levin::test {

struct OnnxCase {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> forward;
  std::vector<at::Tensor> example;  // inputs of four samples
  bool any_length = false;          // is exported with dynamic_length
};

using OnnxCases = std::vector<OnnxCase>;

/// Single operators and groups of them.
[[nodiscard]] OnnxCases operator_cases();
/// The same, of operators that take elements from places and put them there: indices, windows, sizes of images.
[[nodiscard]] OnnxCases placing_cases();
/// Layers of torch::nn, and networks made of them.
[[nodiscard]] OnnxCases layer_cases();
/// Hugging Face's families, from the folders in `data`.
[[nodiscard]] OnnxCases pretrained_cases(const std::string& data);

}  // namespace levin::test
