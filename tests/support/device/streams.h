// The test device's streams. Operators run at once; what is late is a copy on a side stream, which runs when somebody
// waits for it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>

namespace levin::test {

/// The calling thread's device and its stream there.
[[nodiscard]] c10::Device current_device();
[[nodiscard]] c10::StreamId current_stream(c10::Device device);

/// Returns true if the backend has streams, events and pinned memory.
[[nodiscard]] bool has_streams();

/// Runs `work` when a stream or the host waits for what the calling thread's stream on `device` has to do.
void run_late(c10::Device device, std::function<void()> work);

/// Runs all that is late on the calling thread's stream.
void finish_stream(c10::Device device);

/// Makes LibTorch know streams, events and the current device.
void register_streams();

}  // namespace levin::test
