// A folder of this machine whose files are kept in an object store as well, while a run writes to it.
//
//   RemoteFolder remote(folder, [](const FetchLimits& limits) { return open_store("s3://bucket/runs/a", limits); });
//   …                       // the folder has what another machine has written; files are copied from now on
//   remote.upload_soon();   // a checkpoint was written
//   remote.finish();        // everything is in the store
//
// Note [What is copied when]
// A thread compares the folder with notes about what is in the store (staging.h), and copies what has changed: logs
// first, then checkpoints in the order in which they were written, of sharded ones the commit record last. An object
// appears whole or not at all, so that at any time each checkpoint in the store is complete, or lacks the record that
// makes it one. A file that the run has removed (NotedRemoval) is removed there after all that is new has been copied:
// a checkpoint never goes before its successor is there. A killed run therefore leaves the store as of some moment,
// from which any machine continues. A file that cannot be copied does not keep the others from being copied, but
// nothing is removed. Files that somebody else removes here stay in the store.
//
// Note [What a run begins with]
// The object run.writer has a random name, which each run replaces by its own before it copies or removes its first
// checkpoint. This machine knows the names with which its files agree. If it knows the one in the store, nobody else
// has continued: its files stay, since they may be newer than the store's, and what it lacks is fetched, except what
// the run has removed. Otherwise the folder becomes what the store has.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "levin/core/options/units.h"
#include "levin/core/storage/object_store.h"
#include "levin/core/storage/run_lock.h"
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
  /// Opens the store of the folder.
  using Open = std::function<std::shared_ptr<ObjectStore>(const FetchLimits& limits)>;
  /// Takes the store's run.lock, and brings the folder up to date: if another machine has written to the store since,
  /// the folder becomes what the store has. Waits while the run that has the lock may still live. Throws Error naming
  /// it if it does, StorageError if the store cannot be reached, and Interrupted if a stop signal arrives.
  RemoteFolder(const std::string& folder, const Open& open, RemoteFolderOptions options = {});
  /// Breaks off what is being copied, and gives the lock back. Never throws.
  ~RemoteFolder();
  RemoteFolder(const RemoteFolder&) = delete;
  RemoteFolder& operator=(const RemoteFolder&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }

  /// Begins a pass now. Throws StorageError if another run has taken the lock.
  void upload_soon();

  /// Returns once everything is in the store. Throws StorageError naming what is not, and where it is kept. After a
  /// stop signal, gives up a store that does not answer within a minute.
  void finish();

 private:
  using Files = std::map<std::string, detail::LocalFile>;  // by their names in the folder

  void bring_up_to_date();
  [[nodiscard]] std::map<std::string, StoredObject> list();
  void choose_kind(std::map<std::string, StoredObject>& there);
  void drop_own_files(const std::map<std::string, StoredObject>& there);
  [[nodiscard]] bool is_inner(const std::string& name) const;
  [[nodiscard]] bool is_other_kind_here(const std::string& name) const;
  [[nodiscard]] bool is_replaced(const std::string& name) const;
  void become_writer();
  void remove_other_kind(const std::string& name);
  using FixedFiles = std::map<std::string, std::unique_ptr<detail::SecondName>>;  // by their names in the folder

  [[nodiscard]] Files scan();
  void note_removed(const Files& files);
  [[nodiscard]] std::pair<int64_t, std::string> newest_uncopied(const Files& files);
  [[nodiscard]] bool is_copied(const std::string& name, const detail::LocalFile& file);
  [[nodiscard]] FixedFiles fix_checkpoints();
  [[nodiscard]] static std::vector<std::string> in_written_order(const FixedFiles& fixed);
  void copy_again();
  void pass();
  void work();

  std::string folder_;
  std::atomic<bool> abandoned_ = false;
  std::atomic<bool> unreachable_ = false;  // after a stop signal
  std::shared_ptr<ObjectStore> store_;     // guarded by passing_
  std::shared_ptr<ObjectStore> hurried_;   // gives up soon: for run.lock, and for finish() after a stop signal
  RemoteFolderOptions options_;
  detail::SyncNotes notes_;
  std::string copies_;  // a folder for second names of files
  std::unique_ptr<RunLock> lock_ = nullptr;
  std::set<std::string> seen_ = {};   // files that were here; guarded by passing_
  std::set<std::string> inner_ = {};  // folders inside that other runs have claimed, with a slash
  bool is_writer_ = false;            // run.writer names this run; guarded by passing_
  bool told_of_removals_ = false;     // by somebody else; guarded by passing_
  bool told_of_refusal_ = false;      // of a removal; guarded by passing_
  std::mutex passing_;                // held during a pass
  std::mutex mutex_;                  // guards what follows
  std::condition_variable changed_;
  bool due_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace levin
