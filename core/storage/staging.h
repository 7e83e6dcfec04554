// The files of this machine that belong to remote folders: a run writes here, and they are copied to the store; what it
// continues from is fetched to here.
//
//   staging_path("s3://bucket/runs")           // ~/.cache/levin/staging/s3/bucket/runs
//   staged_url("…/staging/s3/bucket/runs/a")   // s3://bucket/runs/a
//
// A server that AWS_ENDPOINT_URL_S3 names has a folder of its own in the place of s3. Next to the folders,
// staging/.synced has a note about each file that is in its store with the same contents. The notes tell, also after a
// kill, which files have changed here since, and which the run has removed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/core/storage/object_store.h"

namespace levin {

/// Returns the path for the files of `url`, an s3:// folder or file: below $XDG_CACHE_HOME/levin/staging, or
/// ~/.cache/levin/staging. Creates nothing. Throws ConfigError for a URL that cannot be written ("https://…") or that
/// has "." or ".." in it.
[[nodiscard]] std::string staging_path(const std::string& url);

/// Returns staging_path() of a URL, and every path unchanged. Throws ConfigError for the URLs of other stores.
[[nodiscard]] std::string staged(const std::string& path_or_url);

/// Returns the URL whose staging_path() this is; "" for all other paths.
[[nodiscard]] std::string staged_url(const std::string& path);

/// Returns the URL for messages, or the path itself if it has none.
[[nodiscard]] std::string shown_path(const std::string& path);

/// Returns the path that a file has on this machine, from the result of shown_path() on any machine. Other texts are
/// returned unchanged.
[[nodiscard]] std::string local_path(const std::string& shown);

/// Creates the local folders for the folders that a remote one contains, so that a new run takes a name that is free in
/// the store as well. Does nothing unless `folder` is a staging_path(). Throws StorageError.
void make_remote_folders(const std::string& folder);

/// Fetches what is missing here, or is older, of the checkpoints at a staging_path(): a file, a sharded checkpoint, or
/// all in a folder and below. Other files are left alone, because a run may be writing them, unless `path` is the file.
/// Does nothing for other paths. Safe for any number of processes. Throws StorageError.
void fetch_staged(const std::string& path);

/// Copies a checkpoint at a staging_path() to its store: of a sharded one the commit record last. Does nothing for
/// other paths. Throws StorageError.
void put_staged(const std::string& path);

/// A run removes a file below a staging_path() while this lives: the file then goes in its store as well, once that has
/// what replaces it. Files that somebody else removes here stay there. Does nothing for other paths. Thread-safe.
class NotedRemoval {
 public:
  explicit NotedRemoval(const std::string& path);
  ~NotedRemoval();
  NotedRemoval(const NotedRemoval&) = delete;
  NotedRemoval& operator=(const NotedRemoval&) = delete;

 private:
  std::string path_;
};

namespace detail {

/// The start of the names of folders for files that are set aside.
inline constexpr const char* kDropped = ".dropped";

/// Returns whether the run has removed the file, or is about to.
[[nodiscard]] bool is_removal_noted(const std::string& path);
/// Forgets a removal if the file is here again.
void forget_removal(const std::string& path);

/// Renames a file of this machine that was never copied to its store, as `aside`. Throws StorageError: then it is still
/// in its place. `url`: of the store, for the error.
void set_aside(const std::string& path, const std::string& aside, const std::string& url);
/// Returns a new folder's path in `folder` for such files: kDropped, or kDropped-2 and so on. Creates nothing.
[[nodiscard]] std::string folder_aside(const std::string& folder);

/// What a file was when it was last the same here and in its store.
struct SyncNote {
  std::string etag = "";       // of the object; "": the object is being written
  uint64_t size = 0;           // bytes
  int64_t modified = 0;        // nanoseconds since 1970, of the local file
  bool removed = false;        // the run has removed the file, which is still in the store
  std::string successor = "";  // removed: the newest checkpoint then, if it had not been copied
  friend bool operator==(const SyncNote&, const SyncNote&) = default;
};

/// Size and time of a local file, links followed; nothing if there is none.
struct LocalFile {
  uint64_t size = 0;
  int64_t modified = 0;
  friend bool operator==(const LocalFile&, const LocalFile&) = default;
};
[[nodiscard]] std::optional<LocalFile> local_file(const std::string& path);
/// Returns the names in a folder, none if it has gone. Throws StorageError if it cannot be read: an unread file must
/// not count as a removed one.
[[nodiscard]] std::vector<std::string> local_names(const std::string& folder);

/// Returns true if the file has not changed since the note was written.
[[nodiscard]] bool is_unchanged(const LocalFile& file, const SyncNote& note);

/// The object that one run holds while it writes to a folder of a store, see run_lock.h.
inline constexpr const char* kLock = "run.lock";
/// The object with the name of the run that wrote checkpoints to a folder of a store last: a random one for each start.
inline constexpr const char* kWriter = "run.writer";
/// The names in run.writer with which a folder of this machine agrees: of the run whose files it has fetched, and of
/// its own runs since. Another name there means that another machine has continued. `notes`: see notes_of().
[[nodiscard]] std::set<std::string> known_writers(const std::string& notes);
void write_known_writers(const std::string& notes, const std::set<std::string>& names);
/// Files of a machine alone, and of those that guard a folder: locks, unfinished files, the states of the ranks, and
/// requests to stop or to save. A checkpoint is never private.
[[nodiscard]] bool is_private(const std::string& name);

/// The notes about the files below a folder, by their names relative to it. Each is read once. Not thread-safe.
class SyncNotes {
 public:
  /// `notes`: the folder of the notes.
  explicit SyncNotes(std::string notes) : folder_(std::move(notes)) {}
  [[nodiscard]] std::map<std::string, SyncNote> all();
  [[nodiscard]] std::optional<SyncNote> find(const std::string& name);
  void write(const std::string& name, const SyncNote& note);
  void remove(const std::string& name);

 private:
  /// With an ending, so that a file and a folder may have the same name.
  [[nodiscard]] std::string path_of(const std::string& name) const { return folder_ + "/" + name + kEnding; }

  static constexpr const char* kEnding = ".note";

  std::string folder_;
  std::map<std::string, std::optional<SyncNote>> read_ = {};
};

/// Returns the folder of the notes about the files below a staging_path().
[[nodiscard]] std::string notes_of(const std::string& folder);

/// Fetches an object to folder/name, and notes it.
void fetch_noted(const ObjectStore& store, const StoredObject& object, const std::string& folder, SyncNotes& notes);

/// A second name of a checkpoint's file, so that exactly this file can be copied although the run may replace it.
class SecondName {
 public:
  /// In `folder`, which the run does not tidy; it must be on the same file system.
  SecondName(const std::string& path, const std::string& folder);
  ~SecondName();
  SecondName(const SecondName&) = delete;
  SecondName& operator=(const SecondName&) = delete;
  /// Returns the path under which the file is read: the first name where the file system has no second ones.
  [[nodiscard]] const std::string& path() const { return name_.empty() ? first_ : name_; }

 private:
  std::string first_;
  std::string name_;
};

/// Copies the file `source` to the store as `name`, and notes it. Returns false if the file was removed.
bool put_noted(ObjectStore& store, const std::string& name, const std::string& source, SyncNotes& notes,
               const std::atomic<bool>* abandoned);

}  // namespace detail

}  // namespace levin
