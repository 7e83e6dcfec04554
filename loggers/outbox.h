// Delivers events to a server that may be slow or unreachable: a queue on the disk (loggers/spill_file.h), and a thread
// that empties it, with retries. Callers of push() never wait for the server.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "levin/core/options/units.h"
#include "levin/loggers/spill_file.h"

namespace levin {

/// The result of an attempt to deliver the first events of a list.
struct Delivery {
  /// What became of the events.
  enum class Kind {
    delivered,  // the first `count` events
    again,      // none; later attempts may succeed: no answer, or an overloaded server
    refused,    // the server refused the first `count` events for good
    damaged,    // the first `count` events cannot be sent: they are invalid, or their files are gone
    halted,     // none, and none will be in this session: wrong credentials, no such experiment
  };
  Kind kind = Kind::delivered;
  size_t count = 0;
  std::string problem = "";   // of all but `delivered`
  Seconds wait = Seconds(0);  // with `again`: the server's wish; 0: none
};

/// Options of an Outbox.
struct OutboxOptions {
  std::string who = "Outbox";               // begins messages
  std::string where = "the server";         // in messages: whom it sends to
  int64_t most_bytes = int64_t{256} << 20;  // of events that wait on the disk
  Seconds first_pause = Seconds(1);         // after a failure; doubles each time, and varies by half
  Seconds longest_pause = Seconds(60);      //
};

/// What an outbox could not deliver.
struct OutboxReport {
  int64_t delivered = 0;  // values, by this object
  int64_t waiting = 0;    // values, on the disk
  int64_t dropped = 0;    // values that found no room, over the whole run
  int64_t refused = 0;    // values that the server refused, over the whole run
  int64_t damaged = 0;    // values of damaged events, by this object
  std::string problem = "";
};

/// A queue of events in a folder, and the thread that delivers them in order. Thread-safe.
class Outbox {
 public:
  /// Delivers some of the first events. Called by the outbox's thread; should end soon if `cancelled` returns true.
  using Deliver = std::function<Delivery(std::span<const SpilledEvent>, const std::function<bool()>& cancelled)>;

  /// Continues the queue in `folder`, which exists. Throws Error if a file there cannot be read.
  Outbox(std::string folder, OutboxOptions options, Deliver deliver);
  /// Ends the thread without waiting for the server; what is not delivered stays on the disk.
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Begins to deliver; does nothing if it has begun.
  void start();
  /// Adds an event (SpillFile::push). Values that find no room are counted, and reported once.
  void push(const std::string& members, int64_t values);
  /// Waits up to `timeout` until all is delivered, then ends the thread. Returns what was not.
  OutboxReport finish(Seconds timeout);

  /// Drops undelivered events after this number for which `is_cut` returns true.
  int64_t cut(int64_t number, const std::function<bool(const SpilledEvent&)>& is_cut);
  [[nodiscard]] int64_t last_number() const;
  [[nodiscard]] OutboxReport report() const;
  [[nodiscard]] std::string path() const;
  void sync();

 private:
  void run();
  void handle(const std::vector<SpilledEvent>& events, const Delivery& delivery);
  void note_failure(const Delivery& delivery);
  void report_disk();
  void stop();

  OutboxOptions options_;
  Deliver deliver_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  SpillFile spill_;
  std::thread thread_;
  bool stopping_ = false;
  bool finishing_ = false;  // retries come quickly
  bool halted_ = false;
  bool failing_ = false;
  bool disk_failing_ = false;
  bool warned_of_drops_ = false;
  bool warned_of_refusal_ = false;
  bool warned_of_damage_ = false;
  int64_t failures_ = 0;  // since the last success
  int64_t delivered_ = 0;
  int64_t damaged_ = 0;
  Seconds pause_ = Seconds(0);
  std::string problem_ = "";
};

}  // namespace levin
