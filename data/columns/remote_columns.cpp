#include "levin/data/columns/remote_columns.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "levin/core/files/url_text.h"
#include "levin/core/options/error.h"
#include "levin/core/storage/open_store.h"
#include "levin/data/files/shard_cache.h"

namespace levin {

namespace {

// A name in the cache for a file and its version.
std::string name_in_cache(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return formatted("table-%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                   static_cast<unsigned long long>(hash.low64));
}

// The URL of the folder, with the query, and the file's name, which is escaped in a web server's URL.
std::pair<std::string, std::string> split_url(const std::string& url) {
  const bool is_web = !url.starts_with("s3:");
  const size_t end = is_web ? std::min(url.find_first_of("?#"), url.size()) : url.size();
  const size_t host = url.find("://") + 3, slash = url.rfind('/', end - 1);
  if (slash == std::string::npos || slash < host || slash + 1 >= end) {
    throw DataError("\"" + cut_text(open_store(url)->url()) +
                    "\" does not name a file. Write the URL of the table, such as s3://bucket/folder/table.csv.");
  }
  const std::string name = url.substr(slash + 1, end - slash - 1);
  return {url.substr(0, slash + 1) + url.substr(end), is_web ? url_decoded(name) : name};
}

/// The copy of a file; its messages name the URL.
class RemoteColumns final : public ColumnFile {
 public:
  RemoteColumns(std::shared_ptr<const CachedFile> copy, std::string url)
      : copy_(std::move(copy)), url_(std::move(url)) {}

  void open(const std::function<std::shared_ptr<const ColumnFile>(const std::string& path)>& open_file) {
    naming_the_url([&] { file_ = open_file(copy_->path()); });
  }

  [[nodiscard]] const std::vector<ColumnInfo>& columns() const override { return file_->columns(); }
  [[nodiscard]] const std::vector<int64_t>& group_rows() const override { return file_->group_rows(); }
  [[nodiscard]] std::string position_text(size_t group, int64_t row) const override {
    return file_->position_text(group, row);
  }
  [[nodiscard]] std::string read(size_t group, const std::vector<WantedColumn>& wanted,
                                 std::vector<ColumnValues>& values) const override {
    std::string problem;
    naming_the_url([&] { problem = file_->read(group, wanted, values); });
    return problem;
  }

 private:
  template <class Action>
  void naming_the_url(const Action& action) const {
    try {
      action();
    } catch (const DataError& error) {
      std::string text = error.what();
      const size_t at = text.find(copy_->path());
      if (at == std::string::npos) throw;
      throw DataError(text.replace(at, copy_->path().size(), url_));
    }
  }

  std::shared_ptr<const CachedFile> copy_;  // keeps the file in the cache
  std::string url_;
  std::shared_ptr<const ColumnFile> file_ = nullptr;
};

}  // namespace

std::shared_ptr<const ColumnFile> open_remote_columns(
    const std::string& url, const std::function<std::shared_ptr<const ColumnFile>(const std::string& path)>& open) {
  const std::pair<std::string, std::string> split = split_url(url);
  const std::string& key = split.second;
  const std::shared_ptr<const ObjectStore> store = open_store(split.first);
  const std::string name = store->url(key);
  const auto found = store->find(key);
  if (!found) throw DataError(name + ": the server has no such file. Correct the path.");
  std::string version = name;
  for (const std::string& part : {found->etag, std::to_string(found->size)}) version += "\n" + part;
  const auto fetch = [&](const std::string& path) {
    store->fetch(key, path);
    std::error_code ignored;
    const uint64_t bytes = std::filesystem::file_size(path, ignored);
    if (found->size == 0 || bytes == found->size) return;
    throw DataError(name + ": expected " + std::to_string(found->size) + " bytes, received " + std::to_string(bytes) +
                    ". The file was replaced meanwhile: start again.");
  };
  auto copy = ShardCache(default_shard_cache(), kShardCacheBytes).get(name_in_cache(version), found->size, fetch);
  auto file = std::make_shared<RemoteColumns>(std::move(copy), name);
  file->open(open);
  return file;
}

std::string shown_table_path(const std::string& path) {
  if (!is_remote(path)) return path;
  const auto [folder, key] = split_url(path);
  return open_store(folder)->url(key);
}

}  // namespace levin
