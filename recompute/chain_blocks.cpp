#include "levin/recompute/chain_blocks.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include "levin/recompute/chain_recorder.h"

namespace levin {

namespace {

constexpr size_t kFewBlocks = 4;

bool is_sequential(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr;
}

bool is_list(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr;
}

}  // namespace

// Passes the calls of one submodule to the recorder.
class ChainBlocks::Watch final : public CallAction {
 public:
  Watch(const torch::nn::Module* module, std::shared_ptr<ChainRecorder*> recorder)
      : module_(module), recorder_(std::move(recorder)) {}
  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition) override {
    return *recorder_ == nullptr ? forward(inputs, nullptr) : (*recorder_)->around(module_, forward, inputs);
  }

 private:
  const torch::nn::Module* module_;
  std::shared_ptr<ChainRecorder*> recorder_;
};

// Detects whether a list is called by levin::call_chain.
class ChainBlocks::ListWatch final : public CallAction {
 public:
  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition) override {
    called = true;
    return forward(inputs, nullptr);
  }
  bool called = false;
};

ChainBlocks::ChainBlocks(torch::nn::Module& root) {
  collect(root, "");
}

ChainBlocks::~ChainBlocks() {
  for (const auto& [module, watch] : watches_) CallActions::remove(module, watch.get());
  for (const auto& [module, watch] : lists_) CallActions::remove_range(watch.get());
}

void ChainBlocks::collect(torch::nn::Module& module, const std::string& prefix) {
  const bool in_sequential = is_sequential(module);
  std::vector<const torch::nn::Module*> children;
  for (const auto& item : module.named_children()) {
    torch::nn::Module& child = *item.value();
    children.push_back(&child);
    const bool frame =
        is_list(child) || (is_sequential(child) && (!in_sequential || module.children().size() < kFewBlocks));
    places_[&child] = {prefix + item.key(), &module, children.size() - 1};
    if (!frame) close(&child);
    if (frame || !in_sequential) collect(child, prefix + item.key() + ".");
  }
  if (in_sequential || children.size() < 2) return;
  lists_[&module] = std::make_shared<ListWatch>();
  CallActions::add_range(children, lists_[&module]);
}

void ChainBlocks::open(const torch::nn::Module* block) {
  CallActions::remove(block, watches_.at(block).get());
  watches_.erase(block);
}

void ChainBlocks::close(const torch::nn::Module* block) {
  auto watch = std::make_shared<Watch>(block, recorder_);
  CallActions::add(block, watch);
  watches_[block] = std::move(watch);
}

void ChainBlocks::keep_only(const std::set<const torch::nn::Module*>& blocks) {
  for (auto item = watches_.begin(); item != watches_.end();) {
    if (blocks.contains(item->first)) {
      ++item;
      continue;
    }
    CallActions::remove(item->first, item->second.get());
    item = watches_.erase(item);
  }
  for (const auto& [module, watch] : lists_) CallActions::remove_range(watch.get());
}

ChainBlocks::Place ChainBlocks::place_of(const torch::nn::Module* block) const {
  Place place = places_.at(block);
  const auto list = lists_.find(place.parent);
  if (!is_sequential(*place.parent) && (list == lists_.end() || !list->second->called)) place.parent = nullptr;
  return place;
}

}  // namespace levin
