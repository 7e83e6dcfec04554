// Reads a small tensor of a device later than it was computed, so that the host need not wait for the device meanwhile.
//
//   read.begin(flags);          // behind the device's work so far
//   …                           // the host prepares and launches more
//   const at::Tensor& here = read.wait();
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace levin {

/// One tensor at a time. One thread, and its current stream.
class LateRead {
 public:
  /// Begins to copy `tensor` to the CPU, behind the current stream's work so far. Does not block where the backend has
  /// events and pinned memory.
  void begin(const at::Tensor& tensor);
  /// The copy. Blocks until it has been made, not for work that was launched after begin(). Valid until the next
  /// begin().
  [[nodiscard]] const at::Tensor& wait();

 private:
  at::Tensor copy_;  // in pinned memory, if `copied_`
  std::optional<c10::Event> copied_ = std::nullopt;
  bool is_late_ = true;  // the backend can
};

}  // namespace levin
