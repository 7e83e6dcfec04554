#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

namespace levin::test {

/// What the operators of a device draw from; -1: of the calling thread's device.
[[nodiscard]] const at::Generator& device_generator(c10::DeviceIndex index);

}  // namespace levin::test
