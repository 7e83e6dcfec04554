#include "levin/adapters/inner_model.h"

#include <torch/nn/module.h>

#include "levin/adapters/lora_layer.h"

namespace levin {

InnerModel inner_model(torch::nn::Module& module) {
  const auto children = module.named_children();
  const bool is_wrapper = children.size() == 1 && module.named_parameters(/*recurse=*/false).is_empty();
  if (!is_wrapper || LoRALayer::of(*children[0].value()) != nullptr) return {&module};
  if (children[0].value()->named_modules("", /*include_self=*/false).is_empty()) return {&module};  // a layer
  return {children[0].value().get(), children[0].key() + "."};
}

}  // namespace levin
