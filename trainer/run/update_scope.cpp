#include "levin/trainer/run/update_scope.h"

#include <utility>

#include "levin/core/console.h"
#include "levin/trainer/held_memory.h"

namespace levin {

UpdateScope::~UpdateScope() {
  if (open_) sharding_.end_update(false);
}

void UpdateScope::changed() {
  open_ = false;
  sharding_.end_update(true);
}

void tell_memory(Run& run) {
  if (!run.strategy->is_sharded() || std::exchange(run.fit.told_memory, true) || run.strategy->rank() != 0) return;
  Console::instance().print(run.strategy->sharding_text() + ": rank 0 of " +
                            std::to_string(run.strategy->world_size()) + " holds " + held_memory(run.trainer).str() +
                            ".");
}

}  // namespace levin
