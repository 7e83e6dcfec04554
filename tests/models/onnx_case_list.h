// How cases of single operators are listed.
#pragma once

#include "models/onnx_cases.h"

namespace levin::test {

class OnnxCaseList {
 public:
  using Tensors = std::vector<at::Tensor>;

  // Adds a function of one input, which returns a list of results.
  void add(const std::string& name, const at::Tensor& example, std::function<Tensors(const Tensors&)> forward) {
    all.push_back({name, std::make_shared<torch::nn::Module>(), std::move(forward), {example}});
  }
  void one(const std::string& name, const at::Tensor& example,
           const std::function<at::Tensor(const at::Tensor&)>& function) {
    add(name, example, [function](const Tensors& x) { return Tensors{function(x.at(0))}; });
  }
  void two(const std::string& name, const Tensors& examples, std::function<Tensors(const Tensors&)> forward) {
    all.push_back({name, std::make_shared<torch::nn::Module>(), std::move(forward), examples});
  }
  OnnxCases all = {};
};

}  // namespace levin::test
