#include "support/device/streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "support/device/test_device.h"

namespace levin::test {

namespace {

std::atomic<bool> streams_on = true;

thread_local c10::DeviceIndex device_index = 0;
thread_local std::array<c10::StreamId, kTestDevices> stream_ids = {};

// Work that is late, in order. `position` counts what was ever put there.
struct Queue {
  std::deque<std::function<void()>> work;
  int64_t put = 0;
  int64_t done = 0;
};

struct Queues {
  std::recursive_mutex mutex;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Queue> all;
  c10::StreamId last_id = 0;
};

Queues& queues() {
  static auto* made = new Queues;
  return *made;
}

Queue& queue_of(c10::DeviceIndex device, c10::StreamId stream) {
  return queues().all[{device, stream}];
}

void run_until(Queue& queue, int64_t position) {
  while (queue.done < position) {
    const auto work = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    work();
  }
}

struct TestEvent {
  c10::DeviceIndex device = 0;
  c10::StreamId stream = 0;
  int64_t position = 0;
};

void check_streams() {
  TORCH_CHECK(streams_on, "testdev: Backend doesn't support streams.");
}

class TestGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kTestDeviceType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kTestDeviceType, std::exchange(device_index, device.has_index() ? device.index() : device_index)};
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kTestDevices, "testdev: unknown device ", int(device.index()));
    if (device.has_index()) device_index = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) device_index = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kTestDevices; }

  c10::Stream getStream(c10::Device device) const override { return stream(device, current_stream(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    check_streams();
    const std::lock_guard lock(queues().mutex);
    return stream(device, ++queues().last_id);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    auto& id = stream_ids.at(static_cast<size_t>(next.device_index()));
    return stream(next.device(), std::exchange(id, next.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    const std::lock_guard lock(queues().mutex);
    return queue_of(stream.device_index(), stream.id()).work.empty();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const std::lock_guard lock(queues().mutex);
    Queue& queue = queue_of(stream.device_index(), stream.id());
    run_until(queue, queue.put);
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    const std::lock_guard lock(queues().mutex);
    for (auto& [place, queue] : queues().all) {
      if (place.first == device) run_until(queue, queue.put);
    }
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    check_streams();
    if (*event == nullptr) *event = new TestEvent;
    const std::lock_guard lock(queues().mutex);
    *static_cast<TestEvent*>(*event) = {stream.device_index(), stream.id(),
                                        queue_of(stream.device_index(), stream.id()).put};
  }
  void block(void* event, const c10::Stream& /*stream*/) const override { synchronizeEvent(event); }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    const std::lock_guard lock(queues().mutex);
    const auto& what = *static_cast<TestEvent*>(event);
    return queue_of(what.device, what.stream).done >= what.position;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const std::lock_guard lock(queues().mutex);
    const auto& what = *static_cast<TestEvent*>(event);
    run_until(queue_of(what.device, what.stream), what.position);
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<TestEvent*>(event);
  }

 private:
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    const c10::DeviceIndex index = device.has_index() ? device.index() : device_index;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kTestDeviceType, index), id);
  }
};

}  // namespace

c10::Device current_device() {
  return {kTestDeviceType, device_index};
}

c10::StreamId current_stream(c10::Device device) {
  return stream_ids.at(static_cast<size_t>(device.has_index() ? device.index() : device_index));
}

bool has_streams() {
  return streams_on;
}

void set_device_streams(bool on) {
  streams_on = on;
}

void run_late(c10::Device device, std::function<void()> work) {
  const std::lock_guard lock(queues().mutex);
  Queue& queue = queue_of(device.index(), current_stream(device));
  queue.work.push_back(std::move(work));
  ++queue.put;
}

void finish_stream(c10::Device device) {
  const std::lock_guard lock(queues().mutex);
  Queue& queue = queue_of(device.index(), current_stream(device));
  run_until(queue, queue.put);
}

void register_streams() {
  static const c10::impl::DeviceGuardImplRegistrar registrar(kTestDeviceType, new TestGuard);
}

}  // namespace levin::test
