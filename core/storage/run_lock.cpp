#include "levin/core/storage/run_lock.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/process/console.h"
#include "levin/core/process/folder_lock.h"
#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/start_thread.h"
#include "levin/core/process/stop_signal.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/staging.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks(200);
constexpr Seconds kMinBeat(5);         // a slow store and a busy machine must not look like the end of a run
constexpr Seconds kMaxBeat(30);        // a lock changes at least so often
constexpr Seconds kMargin(5);          // seconds that a second run waits in addition
constexpr Seconds kLongestAnswer(20);  // of a store that gives up soon
constexpr std::chrono::seconds kSettling(1);

// Also counts while the machine sleeps.
std::chrono::nanoseconds boot_time() {
  timespec now = {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

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
  bool is_gone = false;  // it has ended, or was a process of this machine
  double every = 0;      // seconds between the changes of its lock
};

Writer writer_of(const std::string& text) {
  Writer writer;
  try {
    const json lock = parse_json(text);
    writer.id = lock.at("id").get<std::string>();
    const auto pid = lock.at("pid").get<int64_t>();
    writer.every = std::clamp(lock.value("every", 0.0), 0.0, 3600.0);
    writer.who = "process " + std::to_string(pid) + " on " + cut_text(lock.at("host").get<std::string>());
    writer.is_gone = lock.value("ended", false) || (lock.at("machine") == machine_id() && pid > 1 && pid <= INT32_MAX &&
                                                    ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
  } catch (const std::exception&) {  // of another form
    writer.id = text;
  }
  return writer;
}

}  // namespace

RunLock::RunLock(std::shared_ptr<ObjectStore> store, std::shared_ptr<ObjectStore> hurried, std::string folder,
                 Seconds upload_every, std::atomic<bool>& broken_off)
    : store_(std::move(store)),
      hurried_(std::move(hurried)),
      folder_(std::move(folder)),
      every_(std::clamp(upload_every, kMinBeat, kMaxBeat)),
      broken_off_(broken_off),
      id_(new_id()) {
  take();
  try {
    writer_ = text_of(detail::kWriter);
    heart_ = start_thread("keeps the lock of " + store_->url(), [this] { beat(); });
  } catch (...) {
    warn_if_it_throws("removing run.lock", [this] { remove(); });
    throw;
  }
}

RunLock::~RunLock() {
  stop_beating();
  if (taken_over().empty() && !is_abandoned_) warn_if_it_throws("removing run.lock", [this] { remove(); });
}

void RunLock::stop_beating() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (heart_.joinable()) heart_.join();
}

// A bucket may allow no run to remove objects.
void RunLock::remove() {
  const std::lock_guard locking(locking_);
  if (writer_of(text_of(detail::kLock)).id != id_) return;
  try {
    hurried_->remove(detail::kLock);
  } catch (const StorageError&) {
    has_ended_ = true;
    hurried_->put(detail::kLock, lock_text());
  }
}

std::string RunLock::lock_text() const {
  return json{{"id", id_},
              {"host", host_name()},
              {"pid", ::getpid()},
              {"machine", machine_id()},
              {"every", every_.count()},
              {"ended", has_ended_},
              {"beats", beats_}}
      .dump();
}

void RunLock::take() {
  std::string seen;
  auto since = steady_clock::now();
  bool told = false;
  const auto is_taken = [this] {
    sure_until_ = sure_since(boot_time());
    return store_->put_if_absent(detail::kLock, lock_text());
  };
  while (!is_taken()) {
    std::string now;
    try {
      now = store_->read(detail::kLock);
    } catch (const StorageError&) {
      if (store_->find(detail::kLock)) throw;
      continue;  // its holder has just ended
    }
    const Writer writer = writer_of(now);
    if (!seen.empty() && now != seen && writer.id == writer_of(seen).id) {
      throw folder_in_use(store_->url(), writer.who);
    }
    if (now != seen) since = steady_clock::now();
    seen = now;
    const auto patience = 2 * std::max(every_, Seconds(writer.every)) + kMargin;
    if (writer.is_gone || steady_clock::now() - since >= patience) {
      try {
        store_->remove(detail::kLock);
      } catch (const StorageError&) {  // then the last one that replaces it has it
        sure_until_ = sure_since(boot_time());
        store_->put(detail::kLock, lock_text());
        std::this_thread::sleep_for(kSettling);
        if (writer_of(store_->read(detail::kLock)).id == id_) return;
      }
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

std::string RunLock::text_of(const std::string& key) {
  return hurried_->find(key) ? hurried_->read(key) : "";
}

// Until when no other run takes a lock that was written at `written`, less the time that a failing request takes.
std::chrono::nanoseconds RunLock::sure_since(std::chrono::nanoseconds written) const {
  const Seconds span = std::max(2 * every_ + kMargin - kLongestAnswer, every_ + Seconds(3));
  return written + std::chrono::duration_cast<std::chrono::nanoseconds>(span);
}

void RunLock::give_way(const std::string& who) {
  const std::string text = store_->url() + ": " + who +
                           " has begun to write there, so this run no longer copies its files. They are in " + folder_ +
                           ". Let only one run continue, and start it again if it was this one.";
  const std::lock_guard lock(mutex_);
  taken_over_ = text;
  broken_off_ = true;
  throw StorageError(text);
}

// See Note [One writer].
void RunLock::keep() {
  const std::lock_guard locking(locking_);
  const auto begun = boot_time();
  const std::string writer = text_of(detail::kWriter);
  const std::string now = text_of(detail::kLock);  // last: it is written just after
  const Writer holder = writer_of(now);
  if (!now.empty() && holder.id != id_) give_way(holder.who);
  if (writer != writer_ && writer != id_) give_way("another run");
  ++beats_;
  if (!now.empty()) {
    hurried_->put(detail::kLock, lock_text());
  } else if (!hurried_->put_if_absent(detail::kLock, lock_text())) {  // somebody has removed it
    give_way(writer_of(text_of(detail::kLock)).who);
  }
  const std::lock_guard lock(mutex_);
  sure_until_ = sure_since(begun);
  if (std::exchange(is_cut_off_, false)) broken_off_ = stop_;
}

void RunLock::confirm() {
  {
    const std::lock_guard lock(mutex_);
    if (!taken_over_.empty()) throw StorageError(taken_over_);
    if (boot_time() < sure_until_) return;
  }
  keep();
}

void RunLock::beat() {
  std::unique_lock lock(mutex_);
  while (!stop_ && taken_over_.empty()) {
    const Seconds sure = sure_until_ - boot_time();
    const Seconds wait = sure > Seconds(0) ? std::min(every_ / 2, sure) : every_ / 2;
    if (stopped_.wait_for(lock, wait, [this] { return stop_; })) return;
    if (boot_time() >= sure_until_) is_cut_off_ = broken_off_ = true;
    lock.unlock();
    try {
      keep();
    } catch (const std::exception& error) {  // a pass reports it
      log::checkpoint.info("run.lock: {}", error.what());
    }
    lock.lock();
  }
}

std::string RunLock::taken_over() const {
  const std::lock_guard lock(mutex_);
  return taken_over_;
}

}  // namespace levin
