#include "levin/core/module_call.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace levin {

// Note [Who else reads the table]
// A run changes the actions of its own modules between its steps. Another thread may be in the middle of a call of
// other modules meanwhile: one that predicts, or another run's. So the table is read under a lock, and a module's list
// is shared by the old table and the new one.
struct CallActions::Table {
  std::unordered_map<const torch::nn::Module*, std::shared_ptr<const List>> lists;
  std::unordered_map<const torch::nn::Module*, std::vector<std::shared_ptr<const Range>>> ranges;  // by first block
};

std::atomic<const CallActions::Table*> CallActions::table_{nullptr};

namespace {

std::shared_mutex& table_mutex() {
  static auto* mutex = new std::shared_mutex;  // never destroyed: modules of static life have actions too
  return *mutex;
}

// Runs one action, and inside it the following ones. An action's function may outlive the call, so it owns its data.
TensorList run_from(const CallActions::List& actions, size_t first, const ModuleForward& forward,
                    const TensorList& inputs, ChainPosition place) {
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
  if (!any()) return nullptr;
  const std::shared_lock lock(table_mutex());
  const Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr) return nullptr;
  const auto found = table->lists.find(module);
  return found == table->lists.end() ? nullptr : found->second.get();
}

std::shared_ptr<const CallActions::Range> CallActions::range_at(const std::vector<const torch::nn::Module*>& blocks,
                                                                size_t first, const Range* within) {
  if (!any()) return nullptr;
  const std::shared_lock lock(table_mutex());
  const Table* table = table_.load(std::memory_order_relaxed);
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
  std::unique_ptr<const Table> old;  // ends after the lock: the end of an action may change the table
  const std::unique_lock lock(table_mutex());
  const Table* const current = table_.load(std::memory_order_relaxed);
  auto table = current == nullptr ? std::make_unique<Table>() : std::make_unique<Table>(*current);
  edit(*table);
  const bool empty = table->lists.empty() && table->ranges.empty();
  table_.store(empty ? nullptr : table.release(), std::memory_order_release);
  old.reset(current);
}

void CallActions::add(const torch::nn::Module* module, std::shared_ptr<CallAction> action) {
  change([&](Table& table) {
    std::shared_ptr<const List>& own = table.lists[module];
    List list = own == nullptr ? List() : *own;
    list.push_back(std::move(action));
    own = std::make_shared<const List>(std::move(list));
  });
}

void CallActions::remove(const torch::nn::Module* module, const CallAction* action) {
  if (of(module) == nullptr) return;
  change([&](Table& table) {
    const auto own = table.lists.find(module);
    if (own == table.lists.end()) return;
    List list = *own->second;
    std::erase_if(list, [&](const auto& one) { return one.get() == action; });
    if (list.empty()) {
      table.lists.erase(own);
    } else {
      own->second = std::make_shared<const List>(std::move(list));
    }
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
                            ChainPosition place) {
  return run_from(actions, 0, forward, inputs, place);
}

}  // namespace levin
