#include "levin/core/storage/staging.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/checkpoint_names.h"
#include "levin/core/storage/open_store.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kScheme = "s3://";
constexpr const char* kBelow = "s3";
constexpr const char* kNotes = ".synced";
constexpr uint64_t kMaxNoteBytes = 4096;

std::string staging_root() {
  return absolute_path(user_cache_folder("staging"));
}

// The part of an absolute path below `folder`; nothing if it is not below it.
std::optional<std::string> part_below(const std::string& path, const std::string& folder) {
  if (!path.starts_with(folder + "/")) return std::nullopt;
  return path.substr(folder.size() + 1);
}

// A remote file or folder, and the folder that it is in.
struct Place {
  std::string folder;  // local
  std::string name;
  std::shared_ptr<ObjectStore> store;  // of the folder
  detail::SyncNotes notes;
};

Place place_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  const std::string url = staged_url(folder);
  if (url.empty()) {
    throw StorageError(staged_url(path) + ": a run needs a folder of the bucket. Write s3://bucket/folder.");
  }
  return {folder, fs::path(path).filename().string(), open_store(url), detail::SyncNotes(detail::notes_of(folder))};
}

}  // namespace

std::string staging_path(const std::string& url) {
  if (!url.starts_with(kScheme)) {
    throw ConfigError("\"" + cut_text(url) +
                      "\" cannot be written: runs are kept in folders, and in buckets of S3 (s3://bucket/folder).");
  }
  std::string below = url.substr(std::string(kScheme).size());
  while (below.ends_with('/')) below.pop_back();
  if (!is_path_below(below) || !has_no_nul(below)) {
    throw ConfigError("\"" + cut_text(url) + "\" does not name a folder of a bucket. Write s3://bucket/folder.");
  }
  return staging_root() + "/" + kBelow + "/" + below;
}

std::string staged(const std::string& path_or_url) {
  return is_remote(path_or_url) ? staging_path(path_or_url) : path_or_url;
}

std::string staged_url(const std::string& path) {
  const auto below = part_below(absolute_path(path), staging_root() + "/" + kBelow);
  return below ? kScheme + *below : "";
}

std::string shown_path(const std::string& path) {
  std::string url = staged_url(path);
  return url.empty() ? path : url;
}

void make_remote_folders(const std::string& folder) {
  const std::string url = staged_url(folder);
  if (url.empty()) return;
  std::set<std::string> made;
  for (const StoredObject& object : open_store(url)->list()) {
    if (!is_path_below(object.key)) continue;
    const std::string below = fs::path(object.key).parent_path().string();
    if (!below.empty() && !below.ends_with(".ckpt") && made.insert(below).second) make_folder(folder + "/" + below);
  }
}

void fetch_staged(const std::string& path) {
  if (staged_url(path).empty()) return;
  Place place = place_of(path);
  std::vector<StoredObject> found = place.store->list(place.name + "/");
  if (auto file = place.store->find(place.name)) found.push_back(std::move(*file));
  for (const StoredObject& object : found) {
    if (!is_path_below(object.key) || !is_checkpoint_name(object.key)) continue;
    const auto note = place.notes.find(object.key);
    const auto file = detail::local_file(place.folder + "/" + object.key);
    if (file && note && detail::is_as_noted(object, *note)) continue;  // the same, or changed here since
    detail::fetch_noted(*place.store, object, place.folder, place.notes);
  }
}

void put_staged(const std::string& path) {
  if (staged_url(path).empty()) return;
  Place place = place_of(path);
  std::vector<std::string> names{place.name};
  std::error_code code;
  if (fs::is_directory(path, code)) {
    names.clear();
    for (const std::string& each : names_in(path)) {
      if (!is_temporary_name(each)) names.push_back(place.name + "/" + each);
    }
    std::stable_partition(names.begin(), names.end(), [](const auto& name) { return !is_commit_record(name); });
  }
  for (const std::string& name : names) {
    (void)detail::put_noted(*place.store, name, place.folder + "/" + name, place.notes, nullptr);
  }
}

namespace detail {

std::optional<LocalFile> local_file(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return LocalFile{static_cast<uint64_t>(found.st_size),
                   int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec};
}

bool is_unchanged(const LocalFile& file, const SyncNote& note) {
  return !note.etag.empty() && file.size == note.size && file.modified == note.modified;
}

bool is_as_noted(const StoredObject& object, const SyncNote& note) {
  return note.etag.empty() ? note.size == object.size : note.etag == object.etag;
}

std::string notes_of(const std::string& folder) {
  const std::string root = staging_root();
  return root + "/" + kNotes + "/" + part_below(absolute_path(folder), root).value_or("");
}

std::map<std::string, SyncNote> SyncNotes::all() {
  std::map<std::string, SyncNote> found;
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder_, code), end; !code && at != end; at.increment(code)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || is_temporary_name(at->path().filename().string())) continue;
    const std::string name = at->path().lexically_relative(folder_).string();
    if (auto note = find(name)) found[name] = std::move(*note);
  }
  return found;
}

std::optional<SyncNote> SyncNotes::find(const std::string& name) {
  const auto [known, is_new] = read_.try_emplace(name);
  if (!is_new) return known->second;
  const auto text = read_regular_file(path_of(name), kMaxNoteBytes);
  std::istringstream stream(text.value_or(""));
  SyncNote note;
  stream >> note.size >> note.modified;
  if (!stream) return std::nullopt;  // as if it had never been the same
  stream >> note.etag;
  return known->second = note;
}

void SyncNotes::write(const std::string& name, const SyncNote& note) {
  make_folder(fs::path(path_of(name)).parent_path().string());
  write_file_durably(path_of(name),
                     std::to_string(note.size) + " " + std::to_string(note.modified) + " " + note.etag + "\n");
  read_[name] = note;
}

void SyncNotes::remove(const std::string& name) {
  std::error_code ignored;
  fs::remove(path_of(name), ignored);
  read_[name] = std::nullopt;
}

void fetch_noted(const ObjectStore& store, const StoredObject& object, const std::string& folder, SyncNotes& notes) {
  const std::string path = folder + "/" + object.key;
  notes.remove(object.key);
  store.fetch(object.key, path);
  if (const auto file = local_file(path)) notes.write(object.key, {object.etag, file->size, file->modified});
}

SecondName::SecondName(const std::string& path) : first_(path), name_(temporary_name(path)) {
  if (::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, name_.c_str(), AT_SYMLINK_FOLLOW) != 0) name_.clear();
}

SecondName::~SecondName() {
  if (!name_.empty()) (void)::unlink(name_.c_str());
}

bool put_noted(ObjectStore& store, const std::string& name, const std::string& source, SyncNotes& notes,
               const std::atomic<bool>* abandoned) {
  const auto file = local_file(source);
  if (!file) return false;
  notes.write(name, {"", file->size, file->modified});
  const SaveInProgress saving;
  try {
    store.put_file(name, source, abandoned);
  } catch (const StorageError&) {
    if (local_file(source)) throw;
    return false;  // removed meanwhile
  }
  if (const auto object = store.find(name)) notes.write(name, {object->etag, file->size, file->modified});
  return true;
}

}  // namespace detail

}  // namespace levin
