// A recorder's errors, in words. Internal.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "levin/core/device_work.h"
#include "levin/core/error.h"

namespace levin {

/// The device cannot capture the step.
class CannotCapture final : public Error {
 public:
  explicit CannotCapture(std::string why);
  /// A clause.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::string why_;
};

/// recorder.record(step). Throws CannotCapture if a step that is captured waits for the device, and what the step
/// throws. Null as recorder.record().
[[nodiscard]] std::unique_ptr<Recording> capture_step(StepRecorder& recorder, const std::function<void()>& step);

}  // namespace levin
