#include "levin/trainer/state/rollback.h"

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/process/console.h"
#include "levin/trainer/state/checkpoint.h"

namespace levin {

namespace {

constexpr int64_t kMaxRollbacks = 3;  // to one checkpoint; a loss that diverges repeatedly has a cause

}  // namespace

void roll_back_if_due(Run& run) {
  const std::string found = run.fit.engine->take_rollback();
  if (found.empty()) return;
  run.checkpoint_writer.finish();
  // Rank 0 writes: once its path is known, the file is on the disk for all.
  const std::string path = run.strategy->ranks().broadcast(run.newest_checkpoint);
  if (path.empty() && run.fit.rows_changed) {
    throw Error(found +
                " nonfinite_loss is rollback, but every checkpoint is older than the last select_rows, and has other "
                "rows. Save one after each select_rows, or set nonfinite_loss to skip.");
  }
  if (path.empty()) {
    throw Error(found +
                " nonfinite_loss is rollback, but there is no checkpoint yet. Save more often (every_n_train_steps), "
                "or set nonfinite_loss to skip.");
  }
  if (++run.fit.rollbacks > kMaxRollbacks) {
    throw Error(found + " It is the " + std::to_string(run.fit.rollbacks) + "th time since " + path +
                " was saved, and going back to it did not help. Lower the learning rate or clip gradients.");
  }
  roll_back(run, load_checkpoint(path), path);
  Console::instance().warn(found + " The weights are restored from " + path +
                           ", and training continues with the next batches.");
}

}  // namespace levin
