// Encloses an optimizer's update if its parameters are sharded over ranks. Every function is called by every rank.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// During its lifetime, parameters are this rank's shards (Strategy::begin_update).
class UpdateScope {
 public:
  explicit UpdateScope(Sharding& sharding) : sharding_(sharding) { sharding_.begin_update(); }
  ~UpdateScope();
  UpdateScope(const UpdateScope&) = delete;
  UpdateScope& operator=(const UpdateScope&) = delete;

  /// Ends the scope after the update, and gathers the new values. Blocks until all ranks arrive.
  void changed();

 private:
  Sharding& sharding_;
  bool open_ = true;
};

/// Once per fit, inside an update: rank 0 reports how much memory it uses.
void tell_memory(Run& run);

}  // namespace levin
