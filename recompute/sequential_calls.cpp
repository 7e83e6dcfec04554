#include "levin/recompute/sequential_calls.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <utility>

#include "levin/core/module_call.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

using torch::nn::AnyModule;

// Replaces one of a Sequential's blocks in its list; the Sequential's children, and so all names, do not change.
class BlockCall : public torch::nn::Module {
 public:
  BlockCall(AnyModule block, std::string name, ChainPosition place)
      : torch::nn::Module("BlockCall"), block_(std::move(block)), name_(std::move(name)), place_(place) {}

  at::Tensor forward(const at::Tensor& input) {
    const auto* actions = CallActions::of(block_.ptr().get());
    if (actions == nullptr) return block_.forward(input);
    const ModuleForward forward = [block = block_, name = name_](const TensorList& inputs, torch::nn::Module* instead) {
      if (instead != nullptr) {
        throw ConfigError("block " + name +
                          " of a torch::nn::Sequential cannot be computed by replicas. Place the whole " +
                          "Sequential, or a module of your own that levin::call calls.");
      }
      return TensorList{AnyModule(block).forward(inputs.at(0))};
    };
    return CallActions::run(*actions, forward, {input}, place_).at(0);
  }

 private:
  AnyModule block_;
  std::string name_;
  ChainPosition place_;
};

// Replaces the first of several blocks that act as one, and calls them all.
class RangeCall : public torch::nn::Module {
 public:
  RangeCall(std::vector<AnyModule> blocks, std::shared_ptr<const CallActions::Range> range)
      : torch::nn::Module("RangeCall"), blocks_(std::move(blocks)), range_(std::move(range)) {}

  at::Tensor forward(const at::Tensor& input) {
    const ModuleForward forward = [blocks = blocks_](const TensorList& inputs, torch::nn::Module*) {
      at::Tensor x = inputs.at(0);
      for (AnyModule block : blocks) x = block.forward(x);
      return TensorList{x};
    };
    return CallActions::run(range_->actions, forward, {input}).at(0);
  }

 private:
  std::vector<AnyModule> blocks_;
  std::shared_ptr<const CallActions::Range> range_;
};

// Replaces a block that is called by a RangeCall before it.
class Called : public torch::nn::Module {
 public:
  Called() : torch::nn::Module("Called") {}
  at::Tensor forward(const at::Tensor& input) { return input; }
};

// The calls of `blocks`, whose modules are `originals`: the calls of a range become one.
std::vector<AnyModule> grouped(const std::vector<AnyModule>& blocks,
                               const std::vector<const torch::nn::Module*>& originals, const CallActions::Range* within,
                               bool keep_count) {
  std::vector<AnyModule> calls;
  for (size_t k = 0; k < blocks.size();) {
    const auto range = CallActions::range_at(originals, k, within);
    if (range == nullptr) {
      calls.push_back(blocks[k++]);
      continue;
    }
    const auto from = static_cast<std::ptrdiff_t>(k);
    const auto to = from + static_cast<std::ptrdiff_t>(range->blocks.size());
    const std::vector<AnyModule> part(blocks.begin() + from, blocks.begin() + to);
    calls.emplace_back(std::make_shared<RangeCall>(grouped(part, range->blocks, range.get(), false), range));
    for (++k; k < static_cast<size_t>(to); ++k) {
      if (keep_count) calls.emplace_back(std::make_shared<Called>());
    }
  }
  return calls;
}

}  // namespace

struct SequentialCalls::Changed {
  std::shared_ptr<torch::nn::SequentialImpl> sequential;
  std::vector<AnyModule> blocks;  // before they were replaced
};

SequentialCalls::SequentialCalls(torch::nn::Module& root) {
  add(root);
}

void SequentialCalls::add(torch::nn::Module& root) {
  if (!CallActions::any()) return;
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (const auto found = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(module)) change(found);
  }
}

SequentialCalls::~SequentialCalls() {
  for (const Changed& one : changed_) std::copy(one.blocks.begin(), one.blocks.end(), one.sequential->begin());
}

void SequentialCalls::change(const std::shared_ptr<torch::nn::SequentialImpl>& sequential) {
  std::vector<const torch::nn::Module*> originals;
  for (size_t k = 0; k < sequential->size(); ++k) originals.push_back((*sequential)[k].get());
  const std::vector<AnyModule> blocks(sequential->begin(), sequential->end());
  std::vector<AnyModule> calls = blocks;
  const auto acts = [&](size_t k) { return k < originals.size() && CallActions::of(originals[k]) != nullptr; };
  bool any = false;
  const auto names = sequential->named_children().keys();
  for (size_t k = 0; k < blocks.size(); ++k) {
    any = any || CallActions::range_at(originals, k, nullptr) != nullptr;
    if (!acts(k)) continue;
    any = true;
    // A block without an action in between ends the chain.
    const ChainPosition place{k == 0 || !acts(k - 1), !acts(k + 1)};
    calls[k] = AnyModule(std::make_shared<BlockCall>(blocks[k], names[k], place));
  }
  if (!any) return;
  changed_.push_back({sequential, blocks});
  calls = grouped(calls, originals, nullptr, /*keep_count=*/true);
  std::copy(calls.begin(), calls.end(), sequential->begin());
}

}  // namespace levin
