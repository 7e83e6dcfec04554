// A device that is not the CPU, for tests of everything that a run does with one: two devices of LibTorch's PrivateUse1
// backend, called "testdev". Operators run as the CPU's kernels on memory that nobody else can read:
//   - the host that reads a device's memory directly dies of it (the pages are not readable at the tensors' addresses);
//   - tensors of the CPU, or of the other device, among an operator's arguments are an error, as on a GPU;
//   - copies to and from the host, and numbers that the host reads, are counted;
//   - a copy on a side stream happens when another stream waits for it, and one to pinned memory of the host when the
//   host
//     waits for it; until then its memory holds NaN;
//   - new memory holds NaN;
//   - a recording replays operators on the memory they had, and nothing that waits can be recorded (recorder.h).
// A shared library: tests link it, and a run file opens it with `plugins`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace levin::test {

/// The name for TrainerOptions::accelerator.
inline constexpr const char* kTestDevice = "testdev";
inline constexpr c10::DeviceType kTestDeviceType = c10::DeviceType::PrivateUse1;
inline constexpr int kTestDevices = 2;

/// What has happened since the last reset, on all threads.
struct DeviceCounts {
  int64_t to_device = 0;     // tensors copied from the host
  int64_t to_host = 0;       // tensors copied to the host, which waits for them
  int64_t numbers_read = 0;  // item(), equal(), sizes that depend on values: the host waits for the device
  int64_t late_copies = 0;   // of to_device: those on a side stream, from pinned memory
  int64_t late_reads = 0;    // tensors copied to pinned memory of the host, for which it does not wait at once
  int64_t recorded = 0;      // recordings
  int64_t replayed = 0;
  int64_t operators = 0;
};
[[nodiscard]] DeviceCounts device_counts();
void reset_device_counts();

/// Bytes of the tensors on both devices.
[[nodiscard]] int64_t device_bytes();

/// Without them the backend has no streams, events and pinned memory.
void set_device_streams(bool on);

/// The operator in which the host read the last number: "aten::_local_scalar_dense".
[[nodiscard]] const char* last_number_read();

}  // namespace levin::test
