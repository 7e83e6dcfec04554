// Around an optimizer's update where ranks share out what is updated. Every function is called by every rank.
#pragma once

#include "levin/trainer/run/run.h"

namespace levin {

/// While one lives, parameters are what this rank updates (Strategy::begin_update).
class UpdateScope {
 public:
  explicit UpdateScope(Sharding& sharding) : sharding_(sharding) { sharding_.begin_update(); }
  ~UpdateScope();
  UpdateScope(const UpdateScope&) = delete;
  UpdateScope& operator=(const UpdateScope&) = delete;

  /// The update was made: ends the scope, and the wholes get the new values. Blocks until all ranks arrive.
  void changed();

 private:
  Sharding& sharding_;
  bool open_ = true;
};

/// Once in a fit, inside an update: rank 0 says how much it holds.
void tell_memory(Run& run);

}  // namespace levin
