// Objects of a store: files in a folder, on a web server, or in a bucket of S3. open_store.h opens stores.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/options/units.h"

namespace levin {

/// A store that cannot be reached, or that refuses: the message names the URL, what was seen and how to fix it.
class StorageError : public DataError {
 public:
  using DataError::DataError;
};

/// An object as its store describes it.
struct StoredObject {
  std::string key = "";   // relative to the store's URL: "train/00042.mds"
  uint64_t size = 0;      // bytes
  std::string etag = "";  // changes with the content; "" where the server does not give one
};

/// When requests are repeated and given up.
struct FetchLimits {
  int64_t attempts = 8;  // in a row without progress; lost connections, stalls, HTTP 408, 429 and 5xx count
  Seconds first_pause = Seconds(0.5);  // before the second attempt; doubles each time, up to 20 s; half of it is random
  Seconds stall_timeout = Seconds(30);           // below min_speed, or without a connection; whole seconds, at least 1
  uint64_t min_speed = 1000;                     // bytes per second
  bool sync = true;                              // fetched files are synced to the disk before they get their name
  const std::atomic<bool>* abandoned = nullptr;  // no further attempt once it is true; must outlive the store
};

/// A tree of objects below a URL. Thread-safe: any number of threads may use one store at once. Every failure is a
/// StorageError; passing failures have been repeated before (FetchLimits).
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  /// Returns the URL of an object, or of the store, for messages: without credentials.
  [[nodiscard]] virtual std::string url(const std::string& key = "") const = 0;

  /// Returns the path of the file on this machine that is the object; "" if it is not a file here.
  [[nodiscard]] virtual std::string local_path(const std::string& /*key*/) const { return ""; }

  /// Returns the object's size and etag without its content, or nothing if it does not exist.
  [[nodiscard]] virtual std::optional<StoredObject> find(const std::string& key) const = 0;

  /// Returns the objects whose keys begin with `prefix`, in all folders, sorted by key. A web server has no listing: an
  /// error says so.
  [[nodiscard]] virtual std::vector<StoredObject> list(const std::string& prefix = "") const = 0;

  /// Returns the bytes from `offset` on: all of them, or `length`; fewer where the object ends.
  [[nodiscard]] virtual std::string read(const std::string& key, uint64_t offset = 0,
                                         std::optional<uint64_t> length = std::nullopt) const = 0;

  /// Copies the object to a local file, whose folder is created: into a temporary file that is renamed once it is
  /// complete and its checksum, where the store has one, is correct. A broken transfer continues where it broke if the
  /// object has not changed. Throws StorageError if `abandoned` becomes true.
  virtual void fetch(const std::string& key, const std::string& path,
                     const std::atomic<bool>* abandoned = nullptr) const = 0;

  /// Writes an object, which readers see whole or not at all.
  virtual void put(const std::string& key, std::string_view bytes) = 0;

  /// Writes an object unless one with this key exists; then it returns false and changes nothing. For one of several
  /// writers, exactly one of which must succeed.
  [[nodiscard]] virtual bool put_if_absent(const std::string& key, std::string_view bytes) = 0;

  /// Copies a local file into the store, in parts if it is large: readers see the object whole or not at all.
  virtual void put_file(const std::string& key, const std::string& path,
                        const std::atomic<bool>* abandoned = nullptr) = 0;

  /// Removes an object; does nothing if it does not exist.
  virtual void remove(const std::string& key) = 0;
};

}  // namespace levin
