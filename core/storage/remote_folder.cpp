#include "levin/core/storage/remote_folder.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/process/console.h"
#include "levin/core/process/folder_lock.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/start_thread.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/checkpoint_names.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr const char* kLock = "run.lock";
constexpr std::chrono::milliseconds kBetweenLooks(200);
constexpr size_t kNamed = 3;  // files in a message

// Where a process id means the same: this boot of this machine, and this container.
std::string machine_id() {
  std::error_code code;
  const fs::path processes = fs::read_symlink("/proc/self/ns/pid", code);
  const auto boot = read_regular_file("/proc/sys/kernel/random/boot_id");
  return boot.value_or("") + " " + processes.string();
}

std::string new_id() {
  std::random_device random;
  return std::to_string(random()) + "-" + std::to_string(random());
}

// Who writes, by the text of run.lock, which another program may have written.
struct Writer {
  std::string id = "";
  std::string who = "an unknown process";
  bool is_gone = false;  // it was a process of this machine
};

Writer writer_of(const std::string& text) {
  Writer writer;
  try {
    const json lock = parse_json(text);
    writer.id = lock.at("id").get<std::string>();
    const auto pid = lock.at("pid").get<int64_t>();
    writer.who = "process " + std::to_string(pid) + " on " + cut_text(lock.at("host").get<std::string>());
    writer.is_gone = lock.at("machine") == machine_id() && pid > 1 && pid <= INT32_MAX &&
                     ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
  } catch (const std::exception&) {  // of another form
    writer.id = text;
  }
  return writer;
}

// Files of this machine alone: locks, unfinished files, and the states of the ranks.
bool is_private(const std::string& name) {
  return name == kLock || name.starts_with(".") || is_temporary_name(name);
}

}  // namespace

RemoteFolder::RemoteFolder(const std::string& folder, std::shared_ptr<ObjectStore> store, RemoteFolderOptions options)
    : folder_(absolute_path(folder)),
      store_(std::move(store)),
      options_(options),
      notes_(detail::notes_of(folder_)),
      id_(new_id()) {
  make_folder(folder_);
  take_lock();
  try {
    fetch_if_another_wrote();
    thread_ = start_thread("copies files to " + store_->url(), [this] { work(); });
  } catch (...) {
    warn_if_it_throws("removing run.lock", [this] { store_->remove(kLock); });
    throw;
  }
}

RemoteFolder::~RemoteFolder() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  abandoned_ = true;
  changed_.notify_all();
  thread_.join();
  if (taken_over().empty()) warn_if_it_throws("removing run.lock", [this] { store_->remove(kLock); });
}

std::string RemoteFolder::lock_text() const {
  return json{{"id", id_}, {"host", host_name()}, {"pid", ::getpid()}, {"machine", machine_id()}, {"passes", passes_}}
      .dump();
}

void RemoteFolder::take_lock() {
  std::string seen;
  auto since = steady_clock::now();
  bool told = false;
  while (!store_->put_if_absent(kLock, lock_text())) {
    std::string now;
    try {
      now = store_->read(kLock);
    } catch (const StorageError&) {
      if (store_->find(kLock)) throw;
      continue;  // its holder has just ended
    }
    const Writer writer = writer_of(now);
    if (!seen.empty() && now != seen && writer.id == writer_of(seen).id) {
      throw folder_in_use(store_->url(), writer.who);
    }
    if (now != seen) since = steady_clock::now();
    seen = now;
    const auto patience = 2 * options_.upload_every + Seconds(5);
    if (writer.is_gone || steady_clock::now() - since >= patience) {
      store_->remove(kLock);
      continue;
    }
    if (!std::exchange(told, true)) {
      Console::instance().print("Waiting to see whether the run in " + store_->url() + " still lives: " + writer.who +
                                ".");
    }
    if (const int number = stop_signal(); number != 0) throw Interrupted(number);
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// Called during a pass.
void RemoteFolder::keep_lock() {
  const std::string now = store_->find(kLock) ? store_->read(kLock) : "";
  const Writer writer = writer_of(now);
  if (!now.empty() && writer.id != id_) {
    const std::string text = store_->url() + ": " + writer.who +
                             " has begun to write there, so this run no longer copies its files. They are in " +
                             folder_ + ". Let only one run continue, and start it again if it was this one.";
    const std::lock_guard lock(mutex_);
    taken_over_ = text;
    throw StorageError(text);
  }
  ++passes_;
  store_->put(kLock, lock_text());
}

// If anything in the store is not as this machine left it, another machine has continued the run, and the folder
// becomes what the store has. Otherwise the folder stays: it may have more than was copied before a kill.
void RemoteFolder::fetch_if_another_wrote() {
  std::map<std::string, StoredObject> there;
  for (StoredObject& object : store_->list()) {
    const std::string name = fs::path(object.key).filename().string();
    if (is_path_below(object.key) && !is_private(name)) there[object.key] = std::move(object);
  }
  const auto noted = notes_.all();
  bool is_changed = false;
  for (const auto& [key, object] : there) {
    const auto note = noted.find(key);
    is_changed |= note == noted.end() || !detail::is_as_noted(object, note->second);
  }
  for (const auto& [name, note] : noted) is_changed |= !note.etag.empty() && !there.contains(name);
  if (!is_changed) return;
  std::vector<std::string> dropped;
  for (const auto& [name, file] : scan()) {
    const auto note = noted.find(name);
    const bool was_copied = note != noted.end() && detail::is_unchanged(file, note->second);
    if (!was_copied && is_checkpoint_name(name)) dropped.push_back(name);
    if (there.contains(name)) continue;
    std::error_code ignored;
    fs::remove(fs::path(folder_) / name, ignored);
    notes_.remove(name);
  }
  if (!dropped.empty()) {
    Console::instance().warn(folder_ + ": another machine has continued the run in " + store_->url() +
                             ", so files that were never copied there are dropped: " + join(dropped, kNamed) + ".");
  }
  std::vector<const StoredObject*> wanted;
  uint64_t bytes = 0;
  for (const auto& [key, object] : there) {
    const auto file = detail::local_file(folder_ + "/" + key);
    const auto note = noted.find(key);
    if (file && note != noted.end() && detail::is_unchanged(*file, note->second) && note->second.etag == object.etag) {
      continue;
    }
    wanted.push_back(&object);
    bytes += object.size;
  }
  if (!wanted.empty()) {
    Console::instance().print("Fetching " + count_of(static_cast<int64_t>(wanted.size()), "file") + " (" +
                              bytes_text(bytes) + ") of " + store_->url() + ".");
  }
  for (const StoredObject* object : wanted) detail::fetch_noted(*store_, *object, folder_, notes_);
}

// Links are followed inside of the folder: a store has none.
RemoteFolder::Files RemoteFolder::scan() const {
  Files found;
  std::vector<std::string> folders{""};
  while (!folders.empty()) {
    const std::string below = folders.back();
    folders.pop_back();
    for (const std::string& each : names_in(folder_ + "/" + below)) {
      const std::string name = below + each;
      const std::string path = folder_ + "/" + name;
      if (is_private(each)) continue;
      std::error_code code;
      const bool is_link = fs::is_symlink(fs::symlink_status(path, code));
      if (is_link && !is_inside(followed_links(path), folder_)) continue;
      if (const auto file = detail::local_file(path)) {
        found[name] = *file;
      } else if (fs::is_directory(path, code) && (!is_link || each.ends_with(".ckpt"))) {
        folders.push_back(name + "/");
      }
    }
  }
  return found;
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
      if (!is_checkpoint_name(name) || fixed.contains(name) || is_copied(name, file)) continue;
      fixed[name] = std::make_unique<detail::SecondName>(folder_ + "/" + name);
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
  keep_lock();
  const auto noted = notes_.all();
  const FixedFiles fixed = fix_checkpoints();
  const Files before = scan();
  for (const auto& [name, file] : before) {
    if (is_checkpoint_name(name) || is_copied(name, file)) continue;
    (void)detail::put_noted(*store_, name, folder_ + "/" + name, notes_, &abandoned_);
  }
  for (const std::string& name : in_written_order(fixed)) {
    const detail::SecondName& second = *fixed.at(name);
    // Shards go once another record is in place: of this one, all have their second names.
    const bool is_replaced =
        is_commit_record(name) && detail::local_file(second.path()) != detail::local_file(folder_ + "/" + name);
    if (is_replaced || !detail::put_noted(*store_, name, second.path(), notes_, &abandoned_)) copy_again();
  }
  std::vector<std::string> removed;
  for (const auto& [name, note] : noted) {
    if (!before.contains(name)) removed.push_back(name);
  }
  if (removed.empty()) return;
  // A file that is missing in `before` was removed after its successor was written, so that one is in `after`.
  const Files after = scan();
  for (const auto& [name, file] : after) {
    if (is_checkpoint_name(name) && !is_copied(name, file) && !noted.contains(name) && !fixed.contains(name)) {
      return copy_again();  // first the new ones
    }
  }
  std::stable_partition(removed.begin(), removed.end(), [](const auto& name) { return is_commit_record(name); });
  for (const std::string& name : removed) {
    if (after.contains(name)) continue;
    store_->remove(name);
    notes_.remove(name);
  }
}

std::string RemoteFolder::taken_over() {
  const std::lock_guard lock(mutex_);
  return taken_over_;
}

void RemoteFolder::work() {
  std::string reported;
  std::unique_lock lock(mutex_);
  while (!stop_ && taken_over_.empty()) {
    changed_.wait_for(lock, options_.upload_every, [this] { return due_ || stop_; });
    if (stop_) return;
    due_ = false;
    lock.unlock();
    std::string problem;
    try {
      pass();
    } catch (...) {
      problem = exception_text(std::current_exception());
      if (taken_over().empty()) problem += " The files are kept in " + folder_ + ", and copied later.";
    }
    if (!problem.empty() && problem != reported && !abandoned_) Console::instance().warn(problem);
    reported = problem;
    lock.lock();
  }
}

void RemoteFolder::upload_soon() {
  if (const std::string text = taken_over(); !text.empty()) throw StorageError(text);
  {
    const std::lock_guard lock(mutex_);
    due_ = true;
  }
  changed_.notify_all();
}

void RemoteFolder::finish() {
  try {
    for (bool again = true; again;) {
      if (const std::string text = taken_over(); !text.empty()) throw StorageError(text);
      pass();
      const std::lock_guard lock(mutex_);
      again = std::exchange(due_, false);
    }
  } catch (const StorageError& error) {
    if (!taken_over().empty()) throw;
    throw StorageError(std::string(error.what()) + " What was not copied is kept in " + folder_ +
                       ", and is copied by the next run with this folder on this machine.");
  }
}

}  // namespace levin
