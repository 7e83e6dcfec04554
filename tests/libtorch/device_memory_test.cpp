// A device's memory, as far as each LibTorch has an interface for it, with an allocator that has no device.
#include "levin/libtorch/device_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/version.h"
#include "support/error_text.h"

namespace levin::device_memory_test {
namespace {

using test::error_of;

const at::Device kDevice(at::kPrivateUse1, 0);

#if LEVIN_TORCH_AT_LEAST(2, 9)

class StandInAllocator final : public c10::DeviceAllocator {
 public:
  // Of 100 bytes, 60 have been freed again.
  StandInAllocator() {
    stats_.allocated_bytes[0].increase(100);
    stats_.allocated_bytes[0].decrease(60);
    c10::SetAllocator(at::kPrivateUse1, this);
  }
  c10::DataPtr allocate(size_t) override { return {}; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { ++times_emptied; }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex) override { return stats_; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { stats_.allocated_bytes[0].reset_peak(); }
#if LEVIN_TORCH_AT_LEAST(2, 10)
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    return {4000, 5000};
  }
#endif

  int times_emptied = 0;

 private:
  DeviceStats stats_;
};

TEST(DeviceMemory, IsWhatTheAllocatorOfTheDeviceReports) {
  static auto* const allocator = new StandInAllocator;  // never destroyed: LibTorch keeps it
  EXPECT_TRUE(has_device_stats());
  EXPECT_EQ(all_pools(device_stats(kDevice).allocated_bytes).current, 40);
  EXPECT_EQ(all_pools(device_stats(kDevice).allocated_bytes).peak, 100);
  reset_peak_stats(kDevice);
  EXPECT_EQ(all_pools(device_stats(kDevice).allocated_bytes).peak, 40);
  empty_device_cache(kDevice);
  EXPECT_EQ(allocator->times_emptied, 1);
#if LEVIN_TORCH_AT_LEAST(2, 10)
  EXPECT_EQ(free_device_memory(kDevice), 4000);
#else
  EXPECT_EQ(error_of<Error>([] { (void)free_device_memory(kDevice); }),
            "Reading a device's free memory needs LibTorch 2.10 or newer; this is Levin with LibTorch " +
                torch_version() + ".");
#endif
}

#else

TEST(DeviceMemory, NeedsALibTorchThatHasAnInterfaceForIt) {
  const std::string sentence =
      "Measuring the memory of a device other than the CPU needs LibTorch 2.9 or newer; this is Levin with LibTorch " +
      torch_version() + ".";
  EXPECT_FALSE(has_device_stats());
  EXPECT_EQ(error_of<Error>([] { (void)device_stats(kDevice); }), sentence);
  EXPECT_EQ(error_of<Error>([] { reset_peak_stats(kDevice); }), sentence);
  EXPECT_EQ(error_of<Error>([] { (void)free_device_memory(kDevice); }), sentence);
  EXPECT_NO_THROW(empty_device_cache(kDevice));
}

#endif

}  // namespace
}  // namespace levin::device_memory_test
