#include "levin/strategies/tape/tape_recorder.h"

#include "levin/strategies/tape/call_recorder.h"
#include "levin/strategies/tape/step_tape.h"

namespace levin {

std::unique_ptr<Recording> TapeRecorder::record(const std::function<void()>& step) {
  RecordedCalls recorded;
  {
    CallRecorder recorder(CallRecorder::Depth::forms);
    step();
    refusal_ = recorder.refusal();
    if (!refusal_.empty()) return nullptr;
    recorded = recorder.take();
  }
  return std::make_unique<StepTape>(std::move(recorded), block_);
}

}  // namespace levin
