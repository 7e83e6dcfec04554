#include "levin/core/module_call.h"

#include <algorithm>
#include <unordered_map>

namespace levin {

struct CallActions::Table {
  std::unordered_map<const torch::nn::Module*, List> lists;
  std::unordered_map<const torch::nn::Module*, std::vector<std::shared_ptr<const Range>>> ranges;  // by first block
};

std::atomic<const CallActions::Table*> CallActions::table_{nullptr};

namespace {

// Runs one action, and inside it those that follow. An action's function may outlive the call: it owns what it needs.
TensorList run_from(const CallActions::List& actions, size_t first, const ModuleForward& forward,
                    const TensorList& inputs, ChainPlace place) {
  if (first + 1 == actions.size()) return actions[first]->around(forward, inputs, place);
  const ModuleForward inner = [actions, first, forward, place](const TensorList& given, torch::nn::Module* instead) {
    if (instead == nullptr) return run_from(actions, first + 1, forward, given, place);
    const ModuleForward on_copy = [forward, instead](const TensorList& tensors, torch::nn::Module* other) {
      return forward(tensors, other == nullptr ? instead : other);
    };
    return run_from(actions, first + 1, on_copy, given, place);
  };
  return actions[first]->around(inner, inputs, place);
}

}  // namespace

const CallActions::List* CallActions::of(const torch::nn::Module* module) {
  const Table* table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  const auto found = table->lists.find(module);
  return found == table->lists.end() ? nullptr : &found->second;
}

std::shared_ptr<const CallActions::Range> CallActions::range_at(const std::vector<const torch::nn::Module*>& blocks,
                                                                size_t first, const Range* within) {
  const Table* table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  const auto found = table->ranges.find(blocks[first]);
  if (found == table->ranges.end()) return nullptr;
  std::shared_ptr<const Range> longest;
  for (const auto& range : found->second) {
    const auto& own = range->blocks;
    if (first + own.size() > blocks.size() || (within != nullptr && own.size() >= within->blocks.size())) continue;
    if (!std::equal(own.begin(), own.end(), blocks.begin() + static_cast<std::ptrdiff_t>(first))) continue;
    if (longest == nullptr || own.size() > longest->blocks.size()) longest = range;
  }
  return longest;
}

void CallActions::change(const std::function<void(Table&)>& edit) {
  const Table* old = table_.load();
  auto table = old == nullptr ? std::make_unique<Table>() : std::make_unique<Table>(*old);
  edit(*table);
  const bool empty = table->lists.empty() && table->ranges.empty();
  table_.store(empty ? nullptr : table.release(), std::memory_order_release);
  delete old;
}

void CallActions::add(const torch::nn::Module* module, std::shared_ptr<CallAction> action) {
  change([&](Table& table) { table.lists[module].push_back(std::move(action)); });
}

void CallActions::remove(const torch::nn::Module* module, const CallAction* action) {
  if (of(module) == nullptr) return;
  change([&](Table& table) {
    List& list = table.lists[module];
    std::erase_if(list, [&](const auto& one) { return one.get() == action; });
    if (list.empty()) table.lists.erase(module);
  });
}

void CallActions::add_range(std::vector<const torch::nn::Module*> blocks, std::shared_ptr<CallAction> action) {
  const torch::nn::Module* first = blocks.at(0);
  auto range = std::make_shared<const Range>(Range{std::move(blocks), {std::move(action)}});
  change([&](Table& table) { table.ranges[first].push_back(std::move(range)); });
}

void CallActions::remove_range(const CallAction* action) {
  if (!any()) return;
  change([&](Table& table) {
    for (auto entry = table.ranges.begin(); entry != table.ranges.end();) {
      std::erase_if(entry->second, [&](const auto& range) { return range->actions[0].get() == action; });
      entry = entry->second.empty() ? table.ranges.erase(entry) : std::next(entry);
    }
  });
}

TensorList CallActions::run(const List& actions, const ModuleForward& forward, const TensorList& inputs,
                            ChainPlace place) {
  return run_from(actions, 0, forward, inputs, place);
}

}  // namespace levin
