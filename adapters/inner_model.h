// The model within a module that only wraps it, as HuggingFaceLM's "model": names in adapters' files are those within
// it.
#pragma once

#include <string>

namespace torch::nn {
class Module;
}

namespace levin {

/// The module that adapters belong to, and the prefix that its parameters' names have in the module around it.
struct InnerModel {
  torch::nn::Module* module = nullptr;
  std::string outer = "";  // "model."; "" if the module wraps nothing
};

/// Returns the submodule of a module that has no parameter of its own and one submodule, which is more than a layer;
/// else returns the module itself.
[[nodiscard]] InnerModel inner_model(torch::nn::Module& module);

}  // namespace levin
