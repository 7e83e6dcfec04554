// Makes LibTorch know the test device: its name, allocator, generators and page-locked memory, and Levin its recorder.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>

#include <array>

#include "levin/strategies/accelerator.h"
#include "levin/strategies/device_copies.h"
#include "support/device/generators.h"
#include "support/device/memory.h"
#include "support/device/recorder.h"
#include "support/device/streams.h"
#include "support/device/test_device.h"

namespace levin::test {

namespace {

class TestHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return device_generator(index); }
  c10::DeviceIndex deviceCount() const override { return kTestDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device().index(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
};

// LibTorch's interface of backends has no recordings.
class TestAccelerator final : public Accelerator {
 public:
  int64_t device_count() const override { return kTestDevices; }
  void use(at::Device device) override { c10::impl::getDeviceGuardImpl(kTestDeviceType)->setDevice(device); }
  std::shared_ptr<DeviceCopier> make_copier(at::Device device) override { return StreamCopier::make(device); }
  std::shared_ptr<StepRecorder> make_recorder(at::Device /*device*/) override {
    return std::make_shared<TestRecorder>();
  }
  std::optional<at::Generator> generator(int64_t index) const override {
    return device_generator(static_cast<c10::DeviceIndex>(index));
  }
};

const bool kRegistered = [] {
  c10::register_privateuse1_backend(kTestDevice);
  c10::SetAllocator(kTestDeviceType, &device_allocator());
  register_streams();
  at::RegisterPrivateUse1HooksInterface(new TestHooks);
  add_accelerator(kTestDeviceType, std::make_unique<TestAccelerator>());
  return true;
}();

}  // namespace

const at::Generator& device_generator(c10::DeviceIndex index) {
  static const auto generators = [] {
    std::array<at::Generator, kTestDevices> made;
    for (auto& generator : made) generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{1});
    return made;
  }();
  return generators.at(static_cast<size_t>(index < 0 ? current_device().index() : index));
}

}  // namespace levin::test
