// A recorded step on a CPU: its operators below autograd, called again in a row. Internal.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/strategies/tape/rank_messages.h"
#include "levin/strategies/tape/recorded_calls.h"
#include "levin/strategies/tape/tape_memory.h"

namespace levin {

class StepTape final : public Recording {
 public:
  /// Of a step that has just run.
  StepTape(RecordedCalls recorded, TapeBlock& block);

  /// Throws Error if the shape of an operator's result differs from the recorded one, and what operators throw.
  void replay() override;
  void replay_beside() override;
  [[nodiscard]] std::vector<at::Tensor> changed_memory() const override { return memory_.changed(); }
  [[nodiscard]] size_t references_to(const at::Tensor& tensor) const override;
  [[nodiscard]] std::vector<at::Tensor> own_random_state() const override;
  void set_own_random_state(const std::vector<at::Tensor>& state) override;
  [[nodiscard]] std::string run_beside(const std::function<void()>& step) override;

  /// The number of operators that a replay calls.
  [[nodiscard]] size_t calls() const { return instructions_.size(); }
  /// The size of the results that it keeps in the block.
  [[nodiscard]] size_t block_bytes() const { return memory_.block_bytes(); }

 private:
  /// An allocated result: where its memory goes.
  struct HandedOver {
    at::Tensor expected = {};  // undefined: the result is
    c10::StorageImpl* storage = nullptr;
  };
  static constexpr size_t kNoMessage = SIZE_MAX;
  struct Instruction {
    c10::OperatorHandle op;
    c10::DispatchKeySet keys;
    bool grad_mode = false;
    std::vector<c10::IValue> arguments = {};
    std::vector<HandedOver> handed = {};  // for each tensor of the results; empty: they are in their places
    std::vector<c10::StorageImpl*> released = {};
    std::vector<size_t> waits = {};  // messages that it waits for
    size_t message = kNoMessage;     // the index of the message that it is
  };

  void add(const RecordedCall& call);
  void note_generator(const RecordedArgument& argument);
  void run(bool sends);
  void send(const Instruction& instruction);
  void wait_for(const std::vector<size_t>& messages);
  [[nodiscard]] c10::IValue value_of(const RecordedArgument& argument, const c10::Argument& schema);
  void hand_over(const Instruction& instruction);

  RecordedCalls recorded_;
  TapeMemory memory_;
  std::vector<Instruction> instructions_;
  std::vector<at::Generator> own_generators_;  // among the arguments
  std::vector<c10::IValue> stack_;
  std::vector<c10::IValue> works_;    // by message: what waits for it
  std::vector<size_t> waits_at_end_;  // messages
  std::vector<Received> received_;    // by message: what the last run_beside() received
};

/// Records steps on a CPU as tapes of operators (TrainerOptions::record_steps). Its recordings share memory for what a
/// step forgets, so no two may be replayed at the same time.
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
