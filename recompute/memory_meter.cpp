#include "levin/recompute/memory_meter.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/device_memory.h"

namespace levin {

namespace {

// Wraps the CPU's allocator. Lives as long as the process: storages refer to their allocator.
// Some operators (oneDNN's scratch memory) take and give bare pointers, which LibTorch allows where a block's context
// is its data: so the metadata of a block is stored in front of its data.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static auto* allocator = new CountingAllocator();  // never destroyed
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = inner_->allocate(bytes + kHeaderBytes);
    const c10::Device device = memory.device();
    auto* data = static_cast<std::byte*>(memory.get()) + kHeaderBytes;
    new (data - kHeaderBytes) Header{std::move(memory), static_cast<int64_t>(bytes)};
    add(static_cast<int64_t>(bytes));
    return {data, data, &CountingAllocator::free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void start() {
    if (running_.exchange(true)) {  // it would allocate from itself
      throw Error(
          "memory cannot be measured: another MemoryMeter measures the CPU's. One at a time: let that one end first.");
    }
    inner_ = GetCPUAllocator();
    SetCPUAllocator(this);
    if (GetCPUAllocator() != this) {
      running_ = false;
      throw Error("memory cannot be measured: the program has set a CPU allocator with a priority above 0.");
    }
    held_ = peak_ = 0;
  }
  void stop() {
    SetCPUAllocator(inner_);
    running_ = false;
  }

  [[nodiscard]] int64_t held() const { return held_; }
  [[nodiscard]] int64_t peak() const { return peak_; }
  void mark() { peak_ = held_.load(); }

 private:
  struct Header {
    c10::DataPtr memory;
    int64_t bytes;
  };
  static constexpr size_t kHeaderBytes = 64;  // as LibTorch aligns data
  static_assert(sizeof(Header) <= kHeaderBytes);

  static void free(void* data) {
    auto* header = reinterpret_cast<Header*>(static_cast<std::byte*>(data) - kHeaderBytes);
    const c10::DataPtr memory = std::move(header->memory);
    instance().add(-header->bytes);
    header->~Header();
  }

  void add(int64_t bytes) {
    const int64_t now = held_ += bytes;
    for (int64_t most = peak_; now > most && !peak_.compare_exchange_weak(most, now);) {
    }
  }

  c10::Allocator* inner_ = nullptr;
  std::atomic<bool> running_ = false;
  std::atomic<int64_t> held_ = 0;
  std::atomic<int64_t> peak_ = 0;
};

class CpuMeter final : public MemoryMeter {
 public:
  CpuMeter() { CountingAllocator::instance().start(); }
  ~CpuMeter() override { CountingAllocator::instance().stop(); }
  [[nodiscard]] int64_t held() const override { return CountingAllocator::instance().held(); }
  [[nodiscard]] int64_t peak() const override { return CountingAllocator::instance().peak(); }
  void mark() override { CountingAllocator::instance().mark(); }
  void wait() const override {}
};

class DeviceMeter final : public MemoryMeter {
 public:
  explicit DeviceMeter(at::Device device) : device_(device) {}
  [[nodiscard]] int64_t held() const override { return all_pools(device_stats(device_).allocated_bytes).current; }
  [[nodiscard]] int64_t peak() const override { return all_pools(device_stats(device_).allocated_bytes).peak; }
  void mark() override { reset_peak_stats(device_); }
  void wait() const override { synchronize(device_); }

 private:
  at::Device device_;
};

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// "MemAvailable:   12345 kB"
int64_t available_on_machine() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kilobytes = 0; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return kUnknown;
}

int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnknown;  // "max" is not a number
}

// cgroup v2 as a container sees its own, then v1.
int64_t left_in_control_group() {
  const std::pair<const char*, const char*> files[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, used_file] : files) {
    const int64_t limit = number_in(limit_file);
    const int64_t used = number_in(used_file);
    if (limit != kUnknown && used != kUnknown) return std::max<int64_t>(0, limit - used);
  }
  return kUnknown;
}

}  // namespace

std::unique_ptr<MemoryMeter> MemoryMeter::make(at::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuMeter>();
  return std::make_unique<DeviceMeter>(device);
}

int64_t free_memory(at::Device device) {
  if (device.is_cpu()) return std::min(available_on_machine(), left_in_control_group());
  const DeviceStats stats = device_stats(device);
  return free_device_memory(device) + all_pools(stats.reserved_bytes).current -
         all_pools(stats.allocated_bytes).current;
}

}  // namespace levin
