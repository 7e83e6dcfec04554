// A save must not be cut by the grace time that a run has after SIGTERM: neither by this process's own end of it, nor
// by the launcher's.
#pragma once

#include "levin/core/rank_status.h"
#include "levin/core/stop_signal.h"

namespace levin {

/// While one lives this rank is saving, or waits for a rank that is.
class SaveInProgress {
 public:
  SaveInProgress() { RankStatus::instance().add_save(1); }
  ~SaveInProgress() { RankStatus::instance().add_save(-1); }
  SaveInProgress(const SaveInProgress&) = delete;
  SaveInProgress& operator=(const SaveInProgress&) = delete;

 private:
  HoldsGrace here_;
};

}  // namespace levin
