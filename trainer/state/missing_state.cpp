#include "levin/trainer/state/missing_state.h"

#include "levin/core/process/console.h"

namespace levin {

bool has_random_state(const State& checkpoint, int64_t ranks) {
  if (!checkpoint.tensors.contains("rng.cpu")) return false;
  const State progress = checkpoint.part("progress");
  if (!progress.has("world_size") || progress.get<int64_t>("world_size") != ranks)
    return true;  // the samples are divided differently, so random numbers differ anyway
  for (int64_t rank = 1; rank < ranks; ++rank) {
    if (!checkpoint.tensors.contains("rng.cpu.rank" + std::to_string(rank))) return false;
  }
  return true;
}

void warn_of_missing_state(const Run& run, const State& checkpoint, const std::string& path) {
  std::vector<std::string> missing;
  if (!has_random_state(checkpoint, run.strategy->ranks().world_size())) missing.emplace_back("the random numbers");
  for (const auto& callback : run.entry.callbacks) {
    const std::string key = callback->state_key();
    const bool saved = !checkpoint.part("callbacks." + key).empty();
    if (!saved && !callback->state_dict().empty()) missing.push_back("the callback " + key);
  }
  if (missing.empty()) return;
  Console::instance().warn(path + ": it holds no state of " + join(missing) + ". " +
                           (missing.size() == 1 ? "It starts" : "They start") +
                           " from scratch, so the run does not continue exactly as it would have.");
}

}  // namespace levin
