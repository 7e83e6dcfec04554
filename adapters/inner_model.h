// The model within a module that only wraps it, as HuggingFaceLM's "model": names in adapters' files are those within
// it.
#pragma once

#include <string>

namespace torch::nn {
class Module;
}

namespace levin {

struct InnerModel {
  torch::nn::Module* module = nullptr;
  std::string outer = "";  // "model."; "" if the module wraps nothing
};

/// That of a module that has one submodule, which is more than a layer, and no parameter of its own; else the module.
[[nodiscard]] InnerModel inner_model(torch::nn::Module& module);

}  // namespace levin
