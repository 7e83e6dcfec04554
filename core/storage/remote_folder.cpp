#include "levin/core/storage/remote_folder.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/process/start_thread.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/storage/checkpoint_names.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr size_t kNamed = 3;         // files in a message
constexpr int64_t kMaxFailures = 3;  // of files in a pass
constexpr size_t kMaxName = 225;     // bytes: notes and unfinished files have longer names

}  // namespace

RemoteFolder::RemoteFolder(const std::string& folder, const Open& open, RemoteFolderOptions options)
    : folder_(absolute_path(folder)),
      store_(open({.abandoned = &abandoned_})),
      hurried_(open({.attempts = 2, .stall_timeout = Seconds(8), .abandoned = &unreachable_})),
      options_(options),
      notes_(detail::notes_of(folder_)),
      copies_(detail::notes_of(folder_) + "/.copies") {
  make_folder(folder_);
  lock_ = std::make_unique<RunLock>(store_, hurried_, folder_, options_.upload_every, abandoned_);
  std::error_code ignored;
  fs::remove_all(copies_, ignored);  // of a process that was killed
  make_folder(copies_);
  bring_up_to_date();
  thread_ = start_thread("copies files to " + store_->url(), [this] { work(); });
}

RemoteFolder::~RemoteFolder() {
  const SaveInProgress saving;
  lock_->stop_beating();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  abandoned_ = true;
  changed_.notify_all();
  thread_.join();
}

// Folders inside that have a run.lock or run.writer of their own belong to other runs, or to another folder of this
// one.
bool RemoteFolder::is_inner(const std::string& name) const {
  return std::any_of(inner_.begin(), inner_.end(), [&](const std::string& folder) { return name.starts_with(folder); });
}

std::map<std::string, StoredObject> RemoteFolder::list() {
  std::map<std::string, StoredObject> there;
  std::vector<StoredObject> all = store_->list();
  for (const StoredObject& object : all) {
    const fs::path key(object.key);
    const bool is_guard = key.filename() == detail::kLock || key.filename() == detail::kWriter;
    if (is_guard && key.has_parent_path()) inner_.insert(key.parent_path().string() + "/");
  }
  for (StoredObject& object : all) {
    if (!is_path_below(object.key) || detail::is_private(object.key) || is_inner(object.key)) continue;
    const fs::path key(object.key);
    if (std::any_of(key.begin(), key.end(), [](const fs::path& part) { return part.string().size() > kMaxName; })) {
      log::checkpoint.warn("{}: a file of this machine cannot have such a long name, so the object is left alone.",
                           store_->url(object.key));
      continue;
    }
    there[object.key] = std::move(object);
  }
  return there;
}

// A checkpoint of one file that a sharded one has replaced, or the other way round, is still there after a kill.
void RemoteFolder::choose_kind(std::map<std::string, StoredObject>& there) {
  std::vector<std::string> goes;
  for (const auto& [key, object] : there) {
    const std::string folder = fs::path(key).parent_path().string();
    if (!there.contains(folder)) continue;
    goes.push_back(there.contains(folder + "/" + kShardedRecordFile) ? folder : key);
  }
  for (const std::string& key : goes) {
    if (there.erase(key) > 0) notes_.write(key, {.removed = true});
  }
}

// Whether a sharded checkpoint has replaced the file, or a file the checkpoint that it is a shard of.
bool RemoteFolder::is_other_kind_here(const std::string& name) const {
  const fs::path path = fs::path(folder_) / name;
  std::error_code code;
  return fs::is_directory(path, code) || fs::is_regular_file(path.parent_path(), code);
}

// Whether another checkpoint is in the place of the one that the missing file belonged to.
bool RemoteFolder::is_replaced(const std::string& name) const {
  const fs::path folder = (fs::path(folder_) / name).parent_path();
  std::error_code code;
  return is_other_kind_here(name) ||
         (folder.extension() == ".ckpt" && fs::is_regular_file(folder / kShardedRecordFile, code));
}

// Another machine has continued the run: what the store does not have goes. Checkpoints that were never copied are set
// aside.
void RemoteFolder::drop_own_files(const std::map<std::string, StoredObject>& there) {
  std::error_code ignored;
  const std::string aside = detail::folder_aside(folder_);
  std::vector<std::string> dropped;
  for (const auto& [name, file] : scan()) {
    const fs::path path = fs::path(folder_) / name;
    if (!is_copied(name, file) && is_checkpoint_name(name)) {
      detail::set_aside(path.string(), aside + "/" + name, store_->url());
      dropped.push_back(name);
    } else if (!there.contains(name)) {
      fs::remove(path, ignored);
    } else {
      continue;
    }
    for (fs::path above = fs::path(name).parent_path(); !above.empty(); above = above.parent_path()) {
      if (::rmdir((fs::path(folder_) / above).c_str()) != 0) break;  // it is not empty
    }
  }
  for (const auto& [name, note] : notes_.all()) {
    if (!is_inner(name) && (note.removed || !there.contains(name))) notes_.remove(name);
  }
  seen_.clear();
  if (dropped.empty()) return;
  Console::instance().warn(folder_ + ": another machine has continued the run in " + store_->url() +
                           ", so files that were never copied there are set aside in the folder " +
                           fs::path(aside).filename().string() + ": " + join(dropped, kNamed) + ".");
}

// See Note [What a run begins with].
void RemoteFolder::bring_up_to_date() {
  std::map<std::string, StoredObject> there = list();
  const bool is_known = std::any_of(there.begin(), there.end(), [&](const auto& item) {
    const auto note = notes_.find(item.first);
    return note && !note->etag.empty() && note->etag == item.second.etag;
  });
  const std::string notes = detail::notes_of(folder_);
  const bool is_own = lock_->writer().empty() ? is_known : detail::known_writers(notes).contains(lock_->writer());
  const bool another_wrote = !there.empty() && !is_own;
  if (another_wrote) drop_own_files(there);
  const int64_t newest = newest_uncopied(scan()).first;
  choose_kind(there);
  std::vector<const StoredObject*> wanted;
  uint64_t bytes = 0;
  for (const auto& [key, object] : there) {
    const std::string path = folder_ + "/" + key;
    const auto file = detail::local_file(path);
    auto note = notes_.find(key);
    std::error_code code;
    if (another_wrote && fs::is_directory(path, code)) fs::remove_all(path, code);  // what a killed process has left
    if (!file && is_other_kind_here(key)) {                                         // the run has replaced it
      notes_.write(key, {.removed = true});
      continue;
    }
    // The run has removed it for a successor that was not copied: if that one is lost, and there is no later one, this
    // is the newest.
    if (note && note->removed && !note->successor.empty() && !there.contains(note->successor) &&
        !detail::local_file(folder_ + "/" + note->successor) && newest <= note->modified) {
      notes_.remove(key);
      note.reset();
    }
    if (note && note->removed && !file) continue;
    const bool is_same = file && is_copied(key, *file) && note->etag == object.etag;
    if (file && !is_same && !another_wrote) notes_.write(key, {"", file->size, file->modified});  // is copied once more
    if (is_same || (file && !another_wrote)) continue;
    wanted.push_back(&object);
    bytes += object.size;
  }
  for (const auto& [name, note] : notes_.all()) {
    if (!note.removed && !there.contains(name) && !is_inner(name))
      notes_.remove(name);  // copied once more, if still here
  }
  if (!wanted.empty()) {
    Console::instance().print("Fetching " + count_of(static_cast<int64_t>(wanted.size()), "file") + " (" +
                              bytes_text(bytes) + ") of " + store_->url() + ".");
  }
  for (const StoredObject* object : wanted) detail::fetch_noted(*store_, *object, folder_, notes_);
  if (another_wrote && !lock_->writer().empty()) detail::write_known_writers(notes, {lock_->writer()});
  (void)scan();  // what is here now and is not later was removed by the run
}

// Before the first checkpoint is copied or removed: logs alone leave another machine its checkpoints.
void RemoteFolder::become_writer() {
  if (is_writer_) return;
  const std::string notes = detail::notes_of(folder_);
  const auto know = [&](const std::set<std::string>& names) {
    warn_if_it_throws("noting who writes", [&] { detail::write_known_writers(notes, names); });
  };
  std::set<std::string> known = detail::known_writers(notes);
  known.insert(lock_->id());  // if this process is killed before or after the next line
  know(known);
  store_->put(detail::kWriter, lock_->id());
  know({lock_->id()});
  is_writer_ = true;
}

// After the checkpoint `name`, or the record of a sharded one, has arrived: what it replaces there, of the other kind.
void RemoteFolder::remove_other_kind(const std::string& name) {
  const auto remove = [&](const std::string& key) {
    store_->remove(key);
    notes_.remove(key);
  };
  if (is_commit_record(name)) {
    const std::string folder = fs::path(name).parent_path().string();
    if (notes_.find(folder)) remove(folder);
    return;
  }
  if (!name.ends_with(".ckpt")) return;
  std::vector<std::string> shards;
  for (const auto& [key, note] : notes_.all()) {
    if (key.starts_with(name + "/")) shards.push_back(key);
  }
  std::stable_partition(shards.begin(), shards.end(), [](const auto& key) { return is_commit_record(key); });
  for (const std::string& key : shards) remove(key);
}

// Links are followed inside of the folder: a store has none.
RemoteFolder::Files RemoteFolder::scan() {
  Files found;
  std::vector<std::string> folders{""};
  while (!folders.empty()) {
    const std::string below = folders.back();
    folders.pop_back();
    for (const std::string& each : detail::local_names(folder_ + "/" + below)) {
      const std::string name = below + each;
      const std::string path = folder_ + "/" + name;
      if (detail::is_private(name)) continue;
      std::error_code code;
      const bool is_link = fs::is_symlink(fs::symlink_status(path, code));
      if (is_link && !is_inside(followed_links(path), folder_)) continue;
      if (const auto file = detail::local_file(path)) {
        found[name] = *file;
      } else if (fs::is_directory(path, code) && (!is_link || each.ends_with(".ckpt"))) {
        if (fs::exists(fs::path(path) / detail::kLock, code)) inner_.insert(name + "/");
        if (!is_inner(name + "/")) folders.push_back(name + "/");
      }
    }
  }
  note_removed(found);
  return found;
}

// One without a note may be on its way to the store by its second name.
void RemoteFolder::note_removed(const Files& files) {
  std::vector<std::string> removed, by_others;
  for (const std::string& name : seen_) {
    if (files.contains(name)) continue;
    const auto note = notes_.find(name);
    if (note && note->removed) continue;
    const std::string path = folder_ + "/" + name;
    std::error_code code;
    if (fs::is_symlink(fs::symlink_status(path, code))) continue;  // to a checkpoint that has gone, for a moment
    if (!is_checkpoint_name(name)) {
      if (note) by_others.push_back(name);  // a run removes no logs
    } else if (note && (detail::is_removal_noted(path) || is_replaced(name))) {
      removed.push_back(name);
    }
  }
  for (const auto& [name, file] : files) {
    seen_.insert(name);
    detail::forget_removal(folder_ + "/" + name);
  }
  if (!by_others.empty() && !std::exchange(told_of_removals_, true)) {
    Console::instance().warn(folder_ + ": another program has removed files of the run (" + join(by_others, kNamed) +
                             "). Files stay in " + store_->url() + " from now on until the run is started again.");
  }
  if (removed.empty()) return;
  const std::string successor = newest_uncopied(files).second;
  for (const std::string& name : removed) {
    const auto note = notes_.find(name);
    try {
      notes_.write(name, {"", note->size, note->modified, /*removed=*/true, successor});
    } catch (const Error& error) {
      log::checkpoint.warn("no note that {} was removed: {}", name, error.what());
    }
  }
}

// The time and the name of the checkpoint that was written last, of those that were not copied.
std::pair<int64_t, std::string> RemoteFolder::newest_uncopied(const Files& files) {
  std::pair<int64_t, std::string> newest;
  for (const auto& [name, file] : files) {
    if (is_checkpoint_name(name) && !is_copied(name, file)) newest = std::max(newest, {file.modified, name});
  }
  return newest;
}

bool RemoteFolder::is_copied(const std::string& name, const detail::LocalFile& file) {
  const auto note = notes_.find(name);
  return note && detail::is_unchanged(file, *note);
}

// Everything that a file refers to was written before it. So files get their second names before the last look for new
// ones: what that look does not find, no file refers to.
RemoteFolder::FixedFiles RemoteFolder::fix_checkpoints() {
  FixedFiles fixed;
  for (bool found_new = true; std::exchange(found_new, false);) {
    for (const auto& [name, file] : scan()) {
      const std::string path = folder_ + "/" + name;
      const auto known = fixed.find(name);
      // A record that was replaced meanwhile names shards that have gone.
      const bool is_fixed =
          known != fixed.end() && (!is_commit_record(name) || detail::local_file(known->second->path()) == file);
      if (!is_checkpoint_name(name) || is_fixed || is_copied(name, file)) continue;
      fixed[name] = std::make_unique<detail::SecondName>(path, copies_);
      found_new = true;
    }
  }
  return fixed;
}

// A checkpoint may name those that were written before it. Shards are copied just before their record.
std::vector<std::string> RemoteFolder::in_written_order(const FixedFiles& fixed) {
  std::vector<std::tuple<int64_t, bool, std::string>> order;
  for (const auto& [name, second] : fixed) {
    const auto record = fixed.find((fs::path(name).parent_path() / kShardedRecordFile).string());
    const auto file = detail::local_file((record == fixed.end() ? second : record->second)->path());
    order.emplace_back(file ? file->modified : 0, is_commit_record(name), name);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (auto& [modified, is_record, name] : order) names.push_back(std::move(name));
  return names;
}

void RemoteFolder::copy_again() {
  const std::lock_guard lock(mutex_);
  due_ = true;
}

void RemoteFolder::pass() {
  const std::lock_guard passing(passing_);
  lock_->keep();
  (void)scan();
  // What the run has removed by now was removed after its successor was written, which is among the files below.
  std::vector<std::string> removed;
  for (const auto& [name, note] : notes_.all()) {
    if (note.removed && !is_inner(name)) removed.push_back(name);
  }
  const FixedFiles fixed = fix_checkpoints();
  std::set<std::string> incomplete;  // records of which a shard may be missing
  for (const auto& [name, second] : fixed) {
    // All shards of a record that is still in its place have their second names: they go once another one is there.
    const bool is_replaced = detail::local_file(second->path()) != detail::local_file(folder_ + "/" + name);
    if (is_commit_record(name) && is_replaced) incomplete.insert(name);
  }
  const Files before = scan();
  std::exception_ptr first;
  int64_t failures = 0;
  const auto copy = [&](const std::string& name, const std::string& source) {
    try {
      lock_->confirm();
      return detail::put_noted(*store_, name, source, notes_, &abandoned_);
    } catch (const StorageError&) {
      if (!lock_->taken_over().empty()) throw;
      if (first == nullptr) first = std::current_exception();
      if (++failures >= kMaxFailures || abandoned_ || stop_signal() != 0) std::rethrow_exception(first);
      incomplete.insert((fs::path(name).parent_path() / kShardedRecordFile).string());
      return true;
    }
  };
  try {
    for (const auto& [name, file] : before) {
      if (!is_checkpoint_name(name) && !is_copied(name, file)) (void)copy(name, folder_ + "/" + name);
    }
  } catch (const StorageError&) {
    if (abandoned_ || stop_signal() != 0) throw;
  }
  failures = 0;  // of logs; checkpoints may be allowed
  if (!fixed.empty() || !removed.empty()) become_writer();
  for (const std::string& name : in_written_order(fixed)) {
    const bool is_there = !incomplete.contains(name) && copy(name, fixed.at(name)->path());
    if (!is_there) {
      const fs::path folder = fs::path(name).parent_path();
      if (folder.extension() == ".ckpt") incomplete.insert((folder / kShardedRecordFile).string());
      copy_again();
    } else if (notes_.find(name) && !notes_.find(name)->etag.empty()) {
      remove_other_kind(name);
    }
    (void)scan();  // notes at once what the run has removed meanwhile
  }
  if (first != nullptr) std::rethrow_exception(first);
  if (!incomplete.empty() || told_of_removals_) return;  // a successor has not arrived, or may have gone
  std::stable_partition(removed.begin(), removed.end(), [](const auto& name) { return is_commit_record(name); });
  for (const std::string& name : removed) {
    const auto note = notes_.find(name);
    if (!note || !note->removed || before.contains(name)) continue;  // it is here again
    lock_->confirm();
    try {
      store_->remove(name);
    } catch (const StorageError& error) {
      if (abandoned_ || stop_signal() != 0) throw;
      const std::string text =
          std::string(error.what()) + " The run has removed this file, and a later pass removes it there.";
      if (!std::exchange(told_of_refusal_, true)) Console::instance().warn(text);
      return;
    }
    notes_.remove(name);
  }
}

void RemoteFolder::work() {
  std::string reported;
  std::unique_lock lock(mutex_);
  while (!stop_ && lock_->taken_over().empty()) {
    changed_.wait_for(lock, options_.upload_every, [this] { return due_ || stop_; });
    if (stop_) return;
    due_ = false;
    lock.unlock();
    std::string problem;
    try {
      pass();
    } catch (...) {
      problem = exception_text(std::current_exception());
      if (lock_->taken_over().empty()) problem += " The files are kept in " + folder_ + ", and copied later.";
    }
    if (!problem.empty() && problem != reported && !abandoned_) Console::instance().warn(problem);
    reported = problem;
    lock.lock();
  }
}

void RemoteFolder::upload_soon() {
  if (const std::string text = lock_->taken_over(); !text.empty()) throw StorageError(text);
  {
    const std::lock_guard lock(mutex_);
    due_ = true;
  }
  changed_.notify_all();
}

void RemoteFolder::finish() {
  const SaveInProgress saving;
  try {
    if (stop_signal() != 0) {
      abandoned_ = true;  // the pass that the thread makes
      const std::lock_guard passing(passing_);
      store_ = hurried_;
      abandoned_ = false;
    }
    for (bool again = true; again;) {
      if (const std::string text = lock_->taken_over(); !text.empty()) throw StorageError(text);
      pass();
      const std::lock_guard lock(mutex_);
      again = std::exchange(due_, false);
    }
  } catch (const StorageError& error) {
    if (!lock_->taken_over().empty()) throw;
    if (stop_signal() != 0) {  // then there is no time to try once more
      unreachable_ = true;
      lock_->abandon();
    }
    throw StorageError(std::string(error.what()) + " What was not copied is kept in " + folder_ +
                       ", and is copied by the next run with this folder on this machine.");
  }
}

}  // namespace levin
