// A folder of this machine whose files are kept in an object store as well, while a run writes to it.
//
//   RemoteFolder remote(folder, open_store("s3://bucket/runs/a"), {.upload_every = Seconds(30)});
//   …                       // the folder has what another machine has written; files are copied from now on
//   remote.upload_soon();   // a checkpoint was written
//   remote.finish();        // everything is in the store
//
// Note [What is copied when]
// A thread compares the folder with notes about what is in the store (staging.h), and copies what has changed: logs
// first, then checkpoints in the order in which they were written, of sharded ones the commit record last. An object
// appears whole or not at all, so that at any time each checkpoint in the store is complete, or lacks the record that
// makes it one. A file that was removed here is removed there after all that is new has been copied: a checkpoint never
// goes before its successor is there. A killed run therefore leaves the store as of some moment, from which any machine
// continues.
//
// Note [One writer]
// The object run.lock names the process that writes, with a number that grows with each pass. A second run waits until
// it stops growing, or reports who writes. A run that finds another one's name there no longer copies anything.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "levin/core/options/units.h"
#include "levin/core/storage/object_store.h"
#include "levin/core/storage/staging.h"

namespace levin {

/// How a RemoteFolder works.
struct RemoteFolderOptions {
  Seconds upload_every = Seconds(30);  // between two passes over the folder
};

/// Copies a folder to a store in the background. Only the training thread of rank 0 uses it, which holds the FolderLock
/// of the folder.
class RemoteFolder {
 public:
  /// Takes the store's run.lock, and brings the folder up to date: if another machine has written to the store since,
  /// the folder becomes what the store has. Waits while the run that has the lock may still live. Throws Error naming
  /// it if it does, StorageError if the store cannot be reached, and Interrupted if a stop signal arrives.
  RemoteFolder(const std::string& folder, std::shared_ptr<ObjectStore> store, RemoteFolderOptions options = {});
  /// Breaks off what is being copied, and gives the lock back. Never throws.
  ~RemoteFolder();
  RemoteFolder(const RemoteFolder&) = delete;
  RemoteFolder& operator=(const RemoteFolder&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }

  /// Begins a pass now. Throws StorageError if another run has taken the lock.
  void upload_soon();

  /// Returns once everything is in the store. Throws StorageError naming what is not, and where it is kept.
  void finish();

 private:
  using Files = std::map<std::string, detail::LocalFile>;  // by their names in the folder

  void take_lock();
  [[nodiscard]] std::string lock_text() const;
  void keep_lock();
  void fetch_if_another_wrote();
  using FixedFiles = std::map<std::string, std::unique_ptr<detail::SecondName>>;  // by their names in the folder

  [[nodiscard]] Files scan() const;
  [[nodiscard]] bool is_copied(const std::string& name, const detail::LocalFile& file);
  [[nodiscard]] FixedFiles fix_checkpoints();
  [[nodiscard]] static std::vector<std::string> in_written_order(const FixedFiles& fixed);
  void copy_again();
  void pass();
  void work();
  [[nodiscard]] std::string taken_over();

  std::string folder_;
  std::shared_ptr<ObjectStore> store_;
  RemoteFolderOptions options_;
  detail::SyncNotes notes_;
  std::string id_;      // of this writer
  int64_t passes_ = 0;  // guarded by passing_
  std::mutex passing_;  // held during a pass
  std::mutex mutex_;    // guards what follows
  std::condition_variable changed_;
  bool due_ = false;
  bool stop_ = false;
  std::string taken_over_ = "";  // not empty: by whom
  std::atomic<bool> abandoned_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace levin
