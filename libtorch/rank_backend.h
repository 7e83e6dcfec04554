// Timeouts and ends of c10d's process groups, which have functions for them since LibTorch 2.9 and 2.7, and messages
// that only c10d's own code sends. Internal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace levin {

/// Base class of Levin's own backends. Its functions override c10d::Backend's where that has them.
class RankBackend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  virtual void setTimeout(std::chrono::milliseconds timeout) = 0;
  virtual void abort() {}
};

/// Returns a backend over Gloo. `address`: the address that other ranks connect to; empty: this host's name.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                                  int rank, int size, const std::string& address,
                                                                  int threads, std::chrono::milliseconds timeout);

/// Sets how long later calls wait for the other ranks. Returns false if the backend keeps its first timeout, as NCCL
/// does up to LibTorch 2.8.
bool set_timeout(c10d::Backend& backend, std::chrono::milliseconds timeout);
bool set_timeout(c10d::ProcessGroup& group, std::chrono::milliseconds timeout);

/// Ends the calls in progress with an error, where the backend can.
void abort_calls(c10d::Backend& backend);
/// Closes the group as PyTorch's destroy_process_group() does, without waiting for the other ranks if `has_failed`.
/// With LibTorch 2.6 the group's destructor closes it.
void close_group(c10d::ProcessGroup& group, bool has_failed);

/// Copies rank 0's tensors to all ranks, at most `bytes` in one message.
void broadcast_from_rank_zero(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                              const std::vector<at::Tensor>& tensors, size_t bytes);

}  // namespace levin
