#include "levin/core/module_call.h"

#include <algorithm>
#include <unordered_map>

namespace levin {

struct CallActions::Table {
  std::unordered_map<const torch::nn::Module*, List> lists;
};

std::atomic<const CallActions::Table*> CallActions::table_{nullptr};

namespace {

// One action, and within it those that follow.
TensorList run_from(const CallActions::List& actions, size_t first, const ModuleForward& forward,
                    const TensorList& inputs, ChainPlace place) {
  if (first == actions.size()) return forward(inputs, nullptr);
  const ModuleForward inner = [&](const TensorList& given, torch::nn::Module* instead) {
    return instead != nullptr ? forward(given, instead) : run_from(actions, first + 1, forward, given, place);
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

void CallActions::add(const torch::nn::Module* module, std::shared_ptr<CallAction> action) {
  const Table* old = table_.load();
  auto table = old == nullptr ? std::make_unique<Table>() : std::make_unique<Table>(*old);
  table->lists[module].push_back(std::move(action));
  table_.store(table.release(), std::memory_order_release);
  delete old;
}

void CallActions::remove(const torch::nn::Module* module, const CallAction* action) {
  const Table* old = table_.load();
  if (old == nullptr || !old->lists.contains(module)) return;
  auto table = std::make_unique<Table>(*old);
  List& list = table->lists[module];
  std::erase_if(list, [&](const auto& one) { return one.get() == action; });
  if (list.empty()) table->lists.erase(module);
  table_.store(table->lists.empty() ? nullptr : table.release(), std::memory_order_release);
  delete old;
}

TensorList CallActions::run(const List& actions, const ModuleForward& forward, const TensorList& inputs,
                            ChainPlace place) {
  return run_from(actions, 0, forward, inputs, place);
}

}  // namespace levin
