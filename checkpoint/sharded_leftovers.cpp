// The remains of killed saves of sharded checkpoints.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>

#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/core/files/files.h"
#include "levin/core/storage/staging.h"

namespace levin {

namespace fs = std::filesystem;

// Note [Locks of shards]
// A shard is complete long before its save is committed: ranks wait for each other. Each keeps the locks of the last
// shards it has written, so a save counts as in progress as long as one of its ranks lives. Several, because several
// checkpoints may be saved at once; not all, because each is an open file.
void hold_shard(LockedFile shard) {
  constexpr size_t most = 8;
  static std::mutex mutex;
  static std::deque<LockedFile> held;
  const std::lock_guard lock(mutex);
  held.push_back(std::move(shard));
  if (held.size() > most) held.pop_front();
}

namespace {

// "6a21c3" of "shard-0-of-2.6a21c3.safetensors", and of other names that begin like it; "" if the name is not a
// shard's.
std::string save_of(const std::string& name) {
  const size_t begin = name.find('.');
  if (!name.starts_with("shard-") || begin == std::string::npos) return "";
  const size_t end = name.find(".safetensors", begin + 1);
  return end == std::string::npos ? "" : name.substr(begin + 1, end - begin - 1);
}

void remove_abandoned_shards_of(const std::string& folder) {
  const auto committed = committed_files(folder);
  if (!committed) return;
  std::map<std::string, std::vector<std::string>> saves;
  for (const std::string& name : names_in(folder)) {
    const std::string save = save_of(name);
    if (!save.empty() && !committed->contains(name)) saves[save].push_back((fs::path(folder) / name).string());
  }
  for (const auto& [save, paths] : saves) {
    const std::deque<NotedRemoval> removals(paths.begin(), paths.end());
    remove_if_abandoned(paths);
  }
  remove_leftovers(folder);  // of the record
  std::error_code code;
  if (!is_sharded_checkpoint(folder)) fs::remove(folder, code);  // an empty folder alone
}

}  // namespace

void remove_abandoned_shards(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = (fs::path(folder) / name).string();
    std::error_code code;
    if (name.ends_with(".ckpt") && fs::is_directory(fs::symlink_status(path, code))) remove_abandoned_shards_of(path);
  }
}

}  // namespace levin
