#include "levin/loggers/outbox.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/start_thread.h"

namespace levin {

namespace {

constexpr size_t kMaxEvents = 1000;      // offered to one delivery
constexpr size_t kMaxBytes = 512 << 10;  //

}  // namespace

Outbox::Outbox(std::string folder, OutboxOptions options, Deliver deliver)
    : options_(std::move(options)), deliver_(std::move(deliver)), spill_(folder, options_.most_bytes) {}

Outbox::~Outbox() {
  stop();
}

void Outbox::start() {
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return;
  stopping_ = finishing_ = halted_ = false;
  thread_ = start_thread("sends metrics", [this] { run(); });
}

void Outbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Outbox::push(const std::string& members, int64_t values) {
  bool is_full = false;
  {
    const std::lock_guard lock(mutex_);
    is_full = !spill_.push(members, values) && !std::exchange(warned_of_drops_, true);
  }
  changed_.notify_all();
  report_disk();
  if (!is_full) return;
  Console::instance().warn(options_.who + ": " + spill_.path() + " holds as much as it may (" +
                           std::to_string(options_.most_bytes) + " bytes) for " + options_.where +
                           ". Further values are dropped until the server takes some; they are counted.");
}

void Outbox::report_disk() {
  std::string problem;
  {
    const std::lock_guard lock(mutex_);
    if (disk_failing_ == !spill_.problem().empty()) return;
    disk_failing_ = !disk_failing_;
    problem = spill_.problem();
  }
  if (problem.empty()) return Console::instance().print(options_.who + ": " + spill_.path() + " can be written again.");
  Console::instance().error(options_.who + ": " + problem +
                            ". Values wait in memory, and are lost if the process is killed; training continues.");
}

void Outbox::run() {
  const auto cancelled = [this] {
    const std::lock_guard lock(mutex_);
    return stopping_;
  };
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (halted_ || spill_.waiting_events() == 0) {
      changed_.notify_all();
      changed_.wait(lock, [this] { return stopping_ || (!halted_ && spill_.waiting_events() > 0); });
      continue;
    }
    const std::vector<SpilledEvent> events = spill_.next(kMaxEvents, kMaxBytes);
    lock.unlock();
    Delivery delivery;
    try {
      delivery = deliver_(events, cancelled);
    } catch (const std::exception& error) {
      delivery = {Delivery::Kind::again, 0, error.what()};
    }
    lock.lock();
    if (stopping_ && delivery.kind == Delivery::Kind::again) break;
    lock.unlock();
    handle(events, delivery);
    lock.lock();
    if (pause_.count() <= 0) continue;
    const auto wake =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(pause_);
    changed_.wait_until(lock, wake, [this] { return stopping_ || pause_.count() <= 0; });
  }
  changed_.notify_all();
}

void Outbox::handle(const std::vector<SpilledEvent>& events, const Delivery& delivery) {
  if (delivery.kind == Delivery::Kind::again || delivery.kind == Delivery::Kind::halted) return note_failure(delivery);
  const size_t count = std::min(delivery.count, events.size());
  int64_t values = 0;
  for (size_t k = 0; k < count; ++k) values += events[k].values;
  const bool refused = delivery.kind == Delivery::Kind::refused;
  const bool damaged = delivery.kind == Delivery::Kind::damaged;
  bool was_failing = false;
  bool is_first_refusal = false;
  bool is_first_damage = false;
  {
    const std::lock_guard lock(mutex_);
    if (count > 0) spill_.acknowledge(events[count - 1].number, refused ? values : 0);
    if (!refused) (damaged ? damaged_ : delivered_) += values;
    pause_ = Seconds(0);
    failures_ = 0;
    was_failing = std::exchange(failing_, false);
    is_first_refusal = refused && !std::exchange(warned_of_refusal_, true);
    is_first_damage = damaged && !std::exchange(warned_of_damage_, true);
  }
  if (is_first_damage) {
    Console::instance().error(options_.who + ": " + count_of(values, "value") + " in " + spill_.path() +
                              " cannot be sent: " + delivery.problem + " Further ones are counted.");
  }
  if (was_failing) Console::instance().print(options_.who + ": " + options_.where + " answers again.");
  if (is_first_refusal) {
    Console::instance().error(options_.who + ": " + options_.where + " refused " + count_of(values, "value") + ": " +
                              delivery.problem + " Further refusals are counted, and reported at the end.");
  }
}

void Outbox::note_failure(const Delivery& delivery) {
  static thread_local std::minstd_rand random{std::random_device{}()};
  const bool halted = delivery.kind == Delivery::Kind::halted;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    problem_ = delivery.problem;
    halted_ = halted_ || halted;
    is_first = !std::exchange(failing_, true) || halted;
    const double longest = finishing_ ? std::min(1.0, options_.longest_pause.count()) : options_.longest_pause.count();
    const double usual =
        std::min(longest, options_.first_pause.count() * std::pow(2.0, static_cast<double>(failures_)));
    failures_ = std::min<int64_t>(failures_ + 1, 30);
    pause_ = Seconds(std::max(usual * std::uniform_real_distribution<double>(0.5, 1.5)(random),
                              std::min(delivery.wait.count(), options_.longest_pause.count())));
  }
  if (!is_first) return;
  Console::instance().warn(options_.who + ": " + options_.where +
                           (halted ? " refuses this run: " : " cannot be reached: ") + delivery.problem +
                           " Values are kept in " + spill_.path() +
                           (halted ? "." : " and sent when it answers; training continues."));
}

OutboxReport Outbox::finish(Seconds timeout) {
  {
    std::unique_lock lock(mutex_);
    finishing_ = true;
    failures_ = 0;
    pause_ = Seconds(0);  // one that was chosen before may be long
    changed_.notify_all();
    if (thread_.joinable()) {
      changed_.wait_for(lock, timeout, [this] { return halted_ || spill_.waiting_events() == 0; });
    }
  }
  stop();
  sync();
  return report();
}

int64_t Outbox::cut(int64_t number, const std::function<bool(const SpilledEvent&)>& is_cut) {
  const std::lock_guard lock(mutex_);
  return spill_.cut(number, is_cut);
}

int64_t Outbox::last_number() const {
  const std::lock_guard lock(mutex_);
  return spill_.last_number();
}

OutboxReport Outbox::report() const {
  const std::lock_guard lock(mutex_);
  return {delivered_,
          spill_.waiting_values(),
          spill_.counts().dropped,
          spill_.counts().refused,
          damaged_,
          spill_.waiting_events() > 0 ? problem_ : ""};
}

std::string Outbox::path() const {
  return spill_.path();
}

void Outbox::sync() {
  const std::lock_guard lock(mutex_);
  spill_.sync();
}

}  // namespace levin
