// Records steps on a CPU as tapes of operators (TrainerOptions::record_steps). Internal.
#pragma once

#include <memory>
#include <string>

#include "levin/core/device_work.h"
#include "levin/strategies/tape/tape_memory.h"

namespace levin {

/// Its recordings share memory for what a step forgets, so no two may be replayed at the same time.
class TapeRecorder final : public StepRecorder {
 public:
  void warm_up(const std::function<void()>& step) override { step(); }
  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& step) override;
  [[nodiscard]] bool runs_step() const override { return true; }
  [[nodiscard]] std::string refusal() const override { return refusal_; }

 private:
  TapeBlock block_;
  std::string refusal_;
};

}  // namespace levin
