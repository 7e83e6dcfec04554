// Encloses an optimizer's update if its parameters are sharded over ranks. Every function is called by every rank.
#pragma once

#include "levin/strategies/sharding.h"

namespace levin {

/// A scope in which parameters are this rank's shards (Sharding::begin_update).
class UpdateScope {
 public:
  explicit UpdateScope(Sharding& sharding) : sharding_(sharding) { sharding_.begin_update(); }
  ~UpdateScope() {
    if (open_) sharding_.end_update(false);
  }
  UpdateScope(const UpdateScope&) = delete;
  UpdateScope& operator=(const UpdateScope&) = delete;

  /// Ends the scope after the update, and gathers the new values. Blocks until all ranks arrive.
  void changed() {
    open_ = false;
    sharding_.end_update(true);
  }

 private:
  Sharding& sharding_;
  bool open_ = true;
};

}  // namespace levin
