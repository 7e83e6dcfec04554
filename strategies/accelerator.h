// Kinds of devices other than the CPU: GPUs through Levin's CUDA component, and every backend that LibTorch knows by
// name (xpu, mps, …), including the backend of a library that a run file's `plugins` opened (LibTorch's PrivateUse1).
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/device_work.h"

namespace levin {

/// One kind of device, as runs use it. LibTorch's interface of backends (DeviceGuardImplInterface) provides everything
/// except recordings; a library may add a class of its own for its backend. Used by the training thread.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  [[nodiscard]] virtual int64_t device_count() const = 0;
  /// Makes `device` the current one of the calling thread, the training thread.
  virtual void use(at::Device device) = 0;
  /// Returns null if the backend has no streams and events: batches are then copied when they are needed.
  [[nodiscard]] virtual std::shared_ptr<DeviceCopier> make_copier(at::Device device) = 0;
  /// Returns null if steps cannot be recorded.
  [[nodiscard]] virtual std::shared_ptr<StepRecorder> make_recorder(at::Device /*device*/) { return nullptr; }
  /// Returns the generator that the backend's operators draw from; unset if it has none of its own.
  [[nodiscard]] virtual std::optional<at::Generator> generator(int64_t index) const = 0;
};

/// Returns the accelerator of `type`. Throws ConfigError if it cannot be used here: no such backend, no device.
[[nodiscard]] Accelerator& accelerator(at::DeviceType type);

/// Uses `own` for devices of `type` from now on, instead of LibTorch's interface.
void add_accelerator(at::DeviceType type, std::unique_ptr<Accelerator> own);

/// Returns the device type with LibTorch's name for it ("xpu"), or the name that a PrivateUse1 library gave itself;
/// unset for an unknown name, for the CPU, and for types that hold no numbers (meta).
[[nodiscard]] std::optional<at::DeviceType> accelerator_type(const std::string& name);

/// LibTorch's name of a device type: "cuda", "xpu".
[[nodiscard]] std::string accelerator_name(at::DeviceType type);

/// Returns why no device of `type` can be used, a sentence with what is missing and how to get it; "" if one can.
[[nodiscard]] std::string why_no_accelerator(at::DeviceType type);

/// Returns the names of the kinds that can be used in this process, without "cuda".
[[nodiscard]] std::vector<std::string> present_accelerators();

/// Makes `device` the calling thread's, and its type one of used_accelerators().
void use_accelerator(at::Device device);

/// Returns the device types that this process has used, whose random numbers are seeded, saved and restored.
[[nodiscard]] std::vector<at::DeviceType> used_accelerators();

}  // namespace levin
