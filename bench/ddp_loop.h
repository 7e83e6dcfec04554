// The loop that bench_ddp compares with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bench::ddp {

/// Trains "mlp" (as overhead_runs.h) or "gpt" (as gpt_runs.h) on so many ranks, which this process becomes by fork:
/// before LibTorch has computed anything. `backend`: gloo, or shm, Levin's. Microseconds a step on rank 0; nothing on
/// the others.
[[nodiscard]] std::optional<double> hand_written_loop(const std::string& model, int64_t steps, int ranks,
                                                      const std::string& backend);

/// In the same way: microseconds of one all-reduce of so many bytes.
[[nodiscard]] std::optional<double> all_reduce(int64_t bytes, int ranks, const std::string& backend);

}  // namespace bench::ddp
