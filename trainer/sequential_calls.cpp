#include "levin/trainer/sequential_calls.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <utility>

#include "levin/core/error.h"
#include "levin/core/module_call.h"

namespace levin {

namespace {

// Stands in a Sequential's list for one of its blocks; the Sequential's children, and so all names, stay the blocks.
class BlockCall : public torch::nn::Module {
 public:
  BlockCall(torch::nn::AnyModule block, std::string name, ChainPlace place)
      : torch::nn::Module("BlockCall"), block_(std::move(block)), name_(std::move(name)), place_(place) {}

  at::Tensor forward(const at::Tensor& input) {
    const auto* actions = CallActions::of(block_.ptr().get());
    if (actions == nullptr) return block_.forward(input);
    const ModuleForward forward = [this](const TensorList& inputs, torch::nn::Module* instead) {
      if (instead != nullptr) {
        throw ConfigError("block " + name_ +
                          " of a torch::nn::Sequential cannot be computed by replicas. Place the whole " +
                          "Sequential, or a module of your own that levin::call calls.");
      }
      return TensorList{block_.forward(inputs.at(0))};
    };
    return CallActions::run(*actions, forward, {input}, place_).at(0);
  }

 private:
  torch::nn::AnyModule block_;
  std::string name_;
  ChainPlace place_;
};

}  // namespace

struct SequentialCalls::Changed {
  std::shared_ptr<torch::nn::SequentialImpl> sequential;
  std::vector<std::pair<size_t, torch::nn::AnyModule>> blocks;  // as they were
};

SequentialCalls::SequentialCalls(torch::nn::Module& root) {
  if (!CallActions::any()) return;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (const auto found = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(module)) change(found);
  }
}

SequentialCalls::~SequentialCalls() {
  for (const Changed& one : changed_) {
    for (const auto& [index, block] : one.blocks)
      *(one.sequential->begin() + static_cast<std::ptrdiff_t>(index)) = block;
  }
}

void SequentialCalls::change(const std::shared_ptr<torch::nn::SequentialImpl>& sequential) {
  std::vector<size_t> found;
  for (size_t k = 0; k < sequential->size(); ++k) {
    if (CallActions::of((*sequential)[k].get()) != nullptr) found.push_back(k);
  }
  if (found.empty()) return;
  Changed changed{sequential, {}};
  const auto names = sequential->named_children().keys();
  for (size_t n = 0; n < found.size(); ++n) {
    const size_t k = found[n];
    // A block without an action in between ends the chain.
    const ChainPlace place{n == 0 || found[n - 1] + 1 != k, n + 1 == found.size() || found[n + 1] != k + 1};
    auto& block = *(sequential->begin() + static_cast<std::ptrdiff_t>(k));
    changed.blocks.emplace_back(k, block);
    block = torch::nn::AnyModule(std::make_shared<BlockCall>(block, names[k], place));
  }
  changed_.push_back(std::move(changed));
}

}  // namespace levin
