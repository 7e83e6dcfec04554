#include "levin/profilers/simple_profiler.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "levin/core/options/error.h"
#include "levin/profilers/time_split.h"

namespace levin {

SimpleProfiler::SimpleProfiler() {
  slots_.reserve(32);
  open_.reserve(32);
}

void SimpleProfiler::end() {
  if (time_split_ != nullptr) steps_ = time_split_->times().table();
  time_split_ = nullptr;
}

// By address: literals with the same text may have several, which actions() puts together.
size_t SimpleProfiler::slot_of(const char* action) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].action == action) return i;
  }
  slots_.push_back({action});
  return slots_.size() - 1;
}

void SimpleProfiler::start(const char* action) {
  const size_t slot = slot_of(action);
  const auto now = Clock::now();
  if (first_ == Clock::time_point()) first_ = now;
  open_.push_back({slot, now});
}

void SimpleProfiler::stop(const char* action) {
  const auto now = Clock::now();
  for (size_t depth = open_.size(); depth > 0; --depth) {
    const Open& open = open_[depth - 1];
    Slot& slot = slots_[open.slot];
    if (slot.action != action && std::strcmp(slot.action, action) != 0) continue;
    ++slot.calls;
    slot.total += now - open.since;
    last_ = now;
    open_.resize(depth - 1);
    return;
  }
}

std::vector<SimpleProfiler::Action> SimpleProfiler::actions() const {
  std::map<std::string, Action> by_name;
  for (const Slot& slot : slots_) {
    Action& action = by_name[slot.action];
    action.name = slot.action;
    action.calls += slot.calls;
    action.total += std::chrono::duration<double>(slot.total).count();
  }
  std::vector<Action> list;
  for (auto& [name, action] : by_name) {
    if (action.calls == 0) continue;
    action.mean = action.total / static_cast<double>(action.calls);
    list.push_back(action);
  }
  std::stable_sort(list.begin(), list.end(), [](const Action& a, const Action& b) { return a.total > b.total; });
  return list;
}

std::string SimpleProfiler::summary() const {
  const double run = std::chrono::duration<double>(last_ - first_).count();
  const std::vector<Action> list = actions();
  if (list.empty()) return "Profile: nothing was measured.";
  size_t widest = 6;
  for (const Action& action : list) widest = std::max(widest, action.name.size());
  const int width = static_cast<int>(widest);
  std::string text = formatted("Profile of %.3f s (nested actions count in each)\n%-*s  %10s  %12s  %12s  %6s", run,
                               width, "action", "calls", "mean us", "total s", "share");
  for (const Action& action : list) {
    text += formatted("\n%-*s  %10ld  %12.2f  %12.4f  %4.1f %%", width, action.name.c_str(), action.calls,
                      action.mean * 1e6, action.total, run > 0 ? 100 * action.total / run : 0.0);
  }
  return steps_.empty() ? text : text + "\n\n" + steps_;
}

}  // namespace levin
