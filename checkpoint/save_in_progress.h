// A save must not be interrupted by the end of the grace time after SIGTERM: neither by this process, nor by the
// launcher.
#pragma once

#include "levin/core/process/rank_status.h"
#include "levin/core/process/stop_signal.h"

namespace levin {

/// During its lifetime this rank is saving, or waits for a rank that is.
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
