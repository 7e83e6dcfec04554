#include "levin/core/storage/staging.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/process/log.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/checkpoint_names.h"
#include "levin/core/storage/open_store.h"
#include "levin/core/storage/s3_settings.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kScheme = "s3://";
constexpr const char* kNotes = ".synced";
constexpr const char* kRemoved = "removed";  // in a note, in the place of the etag
constexpr const char* kWriters = ".writers";
constexpr uint64_t kMaxNoteBytes = 4096;
constexpr int kMaxLists = 10;  // of a run that is writing

std::mutex removals_mutex;
std::map<std::string, int> removals;  // of absolute paths: how many remove it now; guarded by removals_mutex

std::string staging_root() {
  return absolute_path(user_cache_folder("staging"));
}

// The server of the environment, which is read once: a file that changes later must not move a run's folder.
std::string endpoint_of(const Variables& variables) {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, std::string> known;
  std::vector<std::string> key;
  for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CONFIG_FILE", "HOME"}) {
    key.push_back(variables(name).value_or(""));
  }
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known[key] = s3_settings(variables).endpoint;
}

// Where buckets are that AWS does not have: two servers may have a bucket of the same name.
std::string server_name() {
  std::string endpoint = endpoint_of(process_variables());
  if (endpoint.empty()) return "s3";
  const size_t scheme = endpoint.find("://");
  if (scheme != std::string::npos) endpoint.erase(0, scheme + 3);
  while (endpoint.ends_with('/')) endpoint.pop_back();
  std::replace_if(
      endpoint.begin(), endpoint.end(),
      [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '-' && c != ':'; }, '_');
  return "s3_" + endpoint;
}

std::string staging_of_server() {
  return staging_root() + "/" + server_name();
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
    throw ConfigError(
        "\"" + cut_text(url) +
        "\" is not a place for runs and checkpoints: name a folder of this machine, or one in a bucket of "
        "S3 (s3://bucket/folder). Google Cloud Storage speaks S3's protocol too, with "
        "AWS_ENDPOINT_URL_S3=https://storage.googleapis.com.");
  }
  std::string below = url.substr(std::string(kScheme).size());
  while (below.ends_with('/')) below.pop_back();
  if (!is_path_below(below) || !has_no_nul(below)) {
    throw ConfigError("\"" + cut_text(url) + "\" does not name a folder of a bucket. Write s3://bucket/folder.");
  }
  return staging_of_server() + "/" + below;
}

std::string staged(const std::string& path_or_url) {
  const size_t end = path_or_url.find(":/");
  const bool has_scheme =
      end != std::string::npos && end > 0 &&
      std::all_of(path_or_url.begin(), path_or_url.begin() + static_cast<std::ptrdiff_t>(end),
                  [](unsigned char c) { return std::isalnum(c) || c == '+' || c == '.' || c == '-'; });
  const bool is_url = has_scheme && (path_or_url.substr(end).starts_with("://") || path_or_url.starts_with("s3:"));
  return is_url ? staging_path(path_or_url) : path_or_url;
}

std::string staged_url(const std::string& path) {
  const std::string absolute = absolute_path(path);
  if (!part_below(absolute, staging_root())) return "";
  const auto below = part_below(absolute, staging_of_server());
  return below ? kScheme + *below : "";
}

std::string shown_path(const std::string& path) {
  std::string url = staged_url(path);
  return url.empty() ? path : url;
}

std::string local_path(const std::string& shown) {
  try {
    return staged(shown);
  } catch (const ConfigError&) {
    return shown;  // no shown_path()
  }
}

namespace {

// Whether nobody but this machine has written to the folder of a run that `path` is in or below, as far as is known.
bool is_own_run_above(const std::string& path) {
  for (fs::path folder = fs::path(path).parent_path();; folder = folder.parent_path()) {
    const std::string url = staged_url(folder.string());
    if (url.empty()) return false;
    const auto store = open_store(url);
    if (!store->find(detail::kWriter)) continue;
    const std::string writer = store->read(detail::kWriter, 0, kMaxNoteBytes);
    return detail::known_writers(detail::notes_of(folder.string())).contains(writer);
  }
}

// What is in the store of the checkpoints at a place.
std::vector<StoredObject> objects_at(const Place& place) {
  std::vector<StoredObject> found = place.store->list(place.name + "/");
  if (auto file = place.store->find(place.name)) found.push_back(std::move(*file));
  std::erase_if(found, [&](const StoredObject& each) {
    return !is_path_below(each.key) || (!is_checkpoint_name(each.key) && each.key != place.name);
  });
  return found;
}

// Fetches what a run in the store has at this moment. Returns false if an object has gone meanwhile.
bool fetch_objects(Place& place, const std::string& path) {
  std::optional<bool> is_own;
  std::string aside;
  for (const StoredObject& object : objects_at(place)) {
    const auto note = place.notes.find(object.key);
    const std::string own_path = place.folder + "/" + object.key;
    const auto file = detail::local_file(own_path);
    if (note && note->removed && object.key != place.name) continue;  // unless it was asked for
    if (file && note && note->etag == object.etag) continue;          // the same, or changed here since
    // The file was never copied, or its copy may have been cut: another machine may have replaced the object.
    const bool is_uncertain = file && !(note && detail::is_unchanged(*file, *note));
    if (is_uncertain && !is_own) is_own = is_own_run_above(path);
    if (is_uncertain && *is_own) continue;
    if (is_uncertain) {
      if (aside.empty()) aside = detail::folder_aside(place.folder);
      detail::set_aside(own_path, aside + "/" + object.key, place.store->url());
    }
    try {
      detail::fetch_noted(*place.store, object, place.folder, place.notes);
    } catch (const StorageError&) {
      if (place.store->find(object.key)) throw;
      return false;
    }
  }
  return true;
}

}  // namespace

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
  for (int tries = 1; !fetch_objects(place, path) && tries < kMaxLists; ++tries) {
  }
}

NotedRemoval::NotedRemoval(const std::string& path) : path_(staged_url(path).empty() ? "" : absolute_path(path)) {
  if (path_.empty()) return;
  const std::lock_guard lock(removals_mutex);
  ++removals[path_];
}

NotedRemoval::~NotedRemoval() {
  if (path_.empty()) return;
  const std::lock_guard lock(removals_mutex);
  --removals[path_];
}

void put_staged(const std::string& path) {
  if (staged_url(path).empty()) return;
  Place place = place_of(path);
  std::vector<std::string> names{place.name};
  std::error_code code;
  if (fs::is_directory(path, code)) {
    names.clear();
    for (const std::string& each : detail::local_names(path)) {
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

std::vector<std::string> local_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    names.push_back(at->path().filename().string());
  }
  const bool has_gone = code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory;
  if (!code || has_gone) return names;
  throw StorageError("cannot read the folder " + folder + ": " + code.message() + ".");
}

bool is_unchanged(const LocalFile& file, const SyncNote& note) {
  return !note.etag.empty() && file.size == note.size && file.modified == note.modified;
}

bool is_removal_noted(const std::string& path) {
  const std::lock_guard lock(removals_mutex);
  return removals.contains(absolute_path(path));
}

void forget_removal(const std::string& path) {
  const std::lock_guard lock(removals_mutex);
  if (removals.empty()) return;
  const auto found = removals.find(absolute_path(path));
  if (found != removals.end() && found->second == 0 && local_file(path)) removals.erase(found);
}

std::string folder_aside(const std::string& folder) {
  std::error_code ignored;
  std::string aside = folder + "/" + kDropped;
  for (int k = 2; fs::exists(aside, ignored); ++k) aside = folder + "/" + kDropped + "-" + std::to_string(k);
  return aside;
}

void set_aside(const std::string& path, const std::string& aside, const std::string& url) {
  std::error_code code;
  fs::create_directories(fs::path(aside).parent_path(), code);
  if (!code) fs::rename(path, aside, code);
  if (!code) return;
  throw StorageError(path + ": it was never copied to " + url +
                     ", where another machine has continued the run, and cannot be set aside as " + aside + ": " +
                     code.message() + ". Move or remove it, and start again.");
}

bool is_private(const std::string& name) {
  const fs::path path(name);
  const std::string file = path.filename().string();
  if (file == kLock || file == kWriter || is_temporary_name(file)) return true;
  if (name == "stop" || name == "save") return true;
  const std::string hidden = is_checkpoint_name(name) ? kDropped : ".";
  return std::any_of(path.begin(), path.end(), [&](const auto& part) { return part.string().starts_with(hidden); });
}

std::set<std::string> known_writers(const std::string& notes) {
  std::istringstream lines(read_regular_file(notes + "/" + kWriters, kMaxNoteBytes).value_or(""));
  std::set<std::string> names;
  for (std::string line; std::getline(lines, line);) names.insert(line);
  return names;
}

void write_known_writers(const std::string& notes, const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  make_folder(notes);
  write_file_durably(notes + "/" + kWriters, text);
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
    std::string name = at->path().lexically_relative(folder_).string();
    if (!name.ends_with(kEnding)) continue;
    name.erase(name.size() - std::string_view(kEnding).size());
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
  if (note.etag == kRemoved) {
    note = {"", note.size, note.modified, true};
    stream.get();
    std::getline(stream, note.successor);
  }
  return known->second = note;
}

void SyncNotes::write(const std::string& name, const SyncNote& note) {
  read_[name] = note;  // also if the disk is full: a file without a note is copied once more
  const std::string path = path_of(name);
  make_folder(fs::path(path).parent_path().string());
  write_file_durably(path, std::to_string(note.size) + " " + std::to_string(note.modified) + " " +
                               (note.removed ? kRemoved + (" " + note.successor) : note.etag) + "\n");
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

SecondName::SecondName(const std::string& path, const std::string& folder)
    : first_(path), name_(temporary_name(folder + "/copy")) {
  if (::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, name_.c_str(), AT_SYMLINK_FOLLOW) != 0) name_.clear();
}

SecondName::~SecondName() {
  if (!name_.empty()) (void)::unlink(name_.c_str());
}

bool put_noted(ObjectStore& store, const std::string& name, const std::string& source, SyncNotes& notes,
               const std::atomic<bool>* abandoned) {
  const auto file = local_file(source);
  if (!file) return false;
  const auto note = [&](const std::string& etag) {
    try {
      notes.write(name, {etag, file->size, file->modified});
    } catch (const Error& error) {  // on a full disk the finished checkpoints must be copied all the more
      log::checkpoint.warn("no note about the copy of {}: {}", name, error.what());
    }
  };
  note("");
  const SaveInProgress saving;
  try {
    store.put_file(name, source, abandoned);
  } catch (const StorageError&) {
    if (local_file(source)) throw;
    return false;  // removed meanwhile
  }
  if (const auto object = store.find(name)) note(object->etag);
  return true;
}

}  // namespace detail

}  // namespace levin
