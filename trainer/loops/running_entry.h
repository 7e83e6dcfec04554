// An entry point that is open: from its attachment to a run to its teardown. Trainer's entry points open one around
// their body; Fabric keeps one open while the code of its user runs.
#pragma once

#include <memory>
#include <string>

#include "levin/trainer/run/run.h"

namespace levin {

/// Whose process an entry point runs in. The Trainer handles signals and LibTorch's warnings until the entry point
/// ends. A guest's calls return to user code while the entry point is open, so a guest leaves these unchanged.
enum class EntryHost { trainer, guest };

/// What an entry point runs.
struct EntryTarget {
  LightningModule& module;
  DataModule* data = nullptr;
  Stage stage = Stage::fit;
  std::string ckpt_path = "";
  EntryHost host = EntryHost::trainer;
};

/// A scope with an open entry point. Its destructor releases what the entry point has used: the data module may be
/// destroyed afterwards, and threads of loaders end. Results can still be read. Used on one thread.
class RunningEntry {
 public:
  /// Attaches the module to the run, and replaces the run's last entry point. Throws Error if the run, or another
  /// trainer that runs the module, is inside an entry point; then nothing has changed.
  RunningEntry(Run& run, const EntryTarget& target);
  RunningEntry(const RunningEntry&) = delete;
  RunningEntry& operator=(const RunningEntry&) = delete;

  /// Does what follows the body of an entry point: the last checkpoints, teardown hooks, the end of the logs. Every
  /// rank calls it. An exception is handled as one of the body: with fail().
  void succeed();
  /// Calls fail_run. Called in a catch block.
  [[noreturn]] void fail();
  /// Ends the logs with the status "failed" and this text. For a guest, whose exception is handled by user code. Does
  /// not communicate with other ranks. Throws what a logger throws.
  void end_failed(const std::string& error);

 private:
  struct Scopes;

  Run& run_;
  std::shared_ptr<Scopes> scopes_;
};

/// Combines the callbacks of the trainer and of the module (EntryPoint::callbacks). Throws ConfigError for a null
/// callback, and for two callbacks that keep their state under the same key.
void assemble_callbacks(Run& run);

}  // namespace levin
