#include "levin/strategies/process/replay_watch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "levin/core/process/rank_status.h"
#include "levin/core/process/start_thread.h"
#include "levin/libtorch/device_memory.h"

namespace levin {

ReplayWatch::ReplayWatch(at::Device device, std::string self, Seconds timeout)
    : device_(device),
      self_(std::move(self)),
      timeout_(timeout),
      done_(device.type()),
      thread_(start_thread("watches recorded steps", [this] { watch(); })) {}

ReplayWatch::~ReplayWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ReplayWatch::launched() {
  const std::lock_guard lock(mutex_);
  if (is_open_ && !done_.query()) return;
  done_.record(DeviceBackend(device_.type()).getStream(device_));
  since_ = Clock::now();
  is_open_ = true;
}

bool ReplayWatch::is_overdue() const {
  if (!is_open_ || Clock::now() - since_ <= timeout_) return false;
  try {
    return !done_.query();
  } catch (const c10::Error&) {  // the device has failed, which the thread that trains reports
    return false;
  }
}

// Nothing that the device computes after such a replay may be used, and what waits for it does not return. It must be
// overdue twice: after a time in which the whole job was suspended it soon ends.
void ReplayWatch::watch() {
  std::unique_lock lock(mutex_);
  int overdue = 0;
  while (!ends_) {
    changed_.wait_for(lock, std::clamp(timeout_ / 4, Seconds(0.01), Seconds(1)));
    overdue = is_overdue() ? overdue + 1 : 0;
    if (ends_ || overdue < 2) continue;
    end_rank(self_ + ": a recorded step did not end within " + readable_duration(timeout_) +
             ": it waits for the others' gradients. Another rank ended or hangs; see its output.");
  }
}

}  // namespace levin
