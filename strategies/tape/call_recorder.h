// Records the operators of the calling thread while it is alive. They run as always. Internal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levin/libtorch/below_autograd.h"
#include "levin/strategies/tape/rank_messages.h"
#include "levin/strategies/tape/recorded_calls.h"

namespace levin {

class CallRecorder final : public OperatorObserver {
 public:
  /// How thoroughly each operator is looked at.
  enum class Depth {
    calls,  // only what is called, to be compared with another recording, and what messages bring
    forms,  // also how it can be called again: runs many operators a second time
  };
  explicit CallRecorder(Depth depth) : depth_(depth) {}

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, OperatorStack& stack) override;

  /// Why the step cannot be repeated: one clause about its first such operator ("aten::item reads …"); "" if it can.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] RecordedCalls take() { return std::move(recorded_); }
  /// With Depth::calls, what each message of other ranks brought, in their order.
  [[nodiscard]] std::vector<Received> take_received() { return std::move(received_); }

 private:
  using Values = std::vector<c10::IValue>;

  [[nodiscard]] std::string problem_of(const c10::OperatorHandle& op, const Values& values) const;
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, const Values& arguments, OperatorStack& stack);
  void record_message(const c10::OperatorHandle& op, c10::DispatchKeySet keys, const Values& arguments,
                      OperatorStack& stack);
  void note_memory(const Values& results);
  [[nodiscard]] RecordedArgument recorded(const c10::IValue& value, bool is_written);
  [[nodiscard]] TensorPlace recorded_result(const at::Tensor& tensor);
  void choose_form(RecordedCall& call, const Values& arguments, const Values& results,
                   const std::optional<at::Tensor>& random_state);

  Depth depth_;
  std::string refusal_;
  RecordedCalls recorded_;
  std::vector<Received> received_;
};

}  // namespace levin
