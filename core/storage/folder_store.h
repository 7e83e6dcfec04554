// Objects in a folder of this machine: a key is the file's path below it.
#pragma once

#include <string>

#include "levin/core/storage/object_store.h"

namespace levin {

/// Files are replaced by renames, so that readers see them whole. Unfinished files of others are not listed.
class FolderStore : public ObjectStore {
 public:
  explicit FolderStore(std::string folder, FetchLimits limits = {});

  [[nodiscard]] std::string url(const std::string& key = "") const override;
  [[nodiscard]] std::string local_path(const std::string& key) const override { return path_of(key); }
  [[nodiscard]] std::optional<StoredObject> find(const std::string& key) const override;
  [[nodiscard]] std::vector<StoredObject> list(const std::string& prefix = "") const override;
  [[nodiscard]] std::string read(const std::string& key, uint64_t offset = 0,
                                 std::optional<uint64_t> length = std::nullopt) const override;
  void fetch(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) const override;
  void put(const std::string& key, std::string_view bytes) override;
  [[nodiscard]] bool put_if_absent(const std::string& key, std::string_view bytes) override;
  void put_file(const std::string& key, const std::string& path, const std::atomic<bool>* abandoned) override;
  void remove(const std::string& key) override;

 private:
  [[nodiscard]] std::string path_of(const std::string& key) const;

  std::string folder_;
  FetchLimits limits_;
};

}  // namespace levin
