// The loop that bench_ddp compares with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bench::ddp {

/// Trains "mlp" (as in overhead_runs.h) or "gpt" (as in gpt_runs.h) on `ranks` processes, which this process forks;
/// call it before LibTorch has computed anything. `backend`: "gloo", or Levin's "shm". Returns microseconds per step on
/// rank 0, and nullopt on the other ranks.
[[nodiscard]] std::optional<double> hand_written_loop(const std::string& model, int64_t steps, int ranks,
                                                      const std::string& backend);

/// Returns the microseconds of one all-reduce of `bytes` bytes, on ranks started as above.
[[nodiscard]] std::optional<double> all_reduce(int64_t bytes, int ranks, const std::string& backend);

}  // namespace bench::ddp
