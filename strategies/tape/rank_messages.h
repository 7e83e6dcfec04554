// Messages between ranks within a recorded step: the operators of c10d. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <string>
#include <vector>

#include "levin/strategies/tape/recorded_calls.h"

namespace levin {

// Note [Messages of a recorded step]
// c10d's collectives are operators (c10d::allreduce_), so a tape calls them again like the others, with the same
// process group. Other ranks cannot tell a replay from the step itself: ranks need not agree on which of them replays.
// A collective runs in parallel with the operators that follow; c10d's callers wait for it where they use its results,
// and a tape before the first later operator on the same memory. To compare a replay with the step, only the step
// communicates; the replay receives what the step has received.

/// Whether the operator communicates with other ranks.
[[nodiscard]] bool is_message(const c10::OperatorHandle& op);

/// Why a tape cannot repeat the message, as the rest of a sentence about it; "" if it can. Those that it can repeat
/// write their results into the tensors of their first argument.
[[nodiscard]] std::string why_not_resendable(const c10::OperatorHandle& op);

/// Waits for a message, by the last result of its operator (c10d::Work). Throws what c10d throws if another rank does
/// not answer.
void wait_for_message(const c10::IValue& work);

/// What a message left in its tensors.
using Received = std::vector<at::Tensor>;

/// Copies of the tensors in a message's first argument.
[[nodiscard]] Received copy_received(const c10::IValue& tensors);
/// Writes them there again.
void receive_again(const Received& received, const c10::IValue& tensors);

/// For each call, and for the end of the step after them, the messages (indices of calls) to wait for before it: those
/// whose memory it is the first to use. A message whose memory no call uses is waited for at once, because the memory
/// may be planned for others' results.
[[nodiscard]] std::vector<std::vector<size_t>> plan_waits(const RecordedCalls& recorded);

}  // namespace levin
