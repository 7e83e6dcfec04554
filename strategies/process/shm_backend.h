// c10d's collectives between the ranks of one host, through memory that they share. Sums are in the order of ranks,
// so that results are bitwise identical on every rank and in every run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "levin/libtorch/rank_backend.h"
#include "levin/strategies/process/shm_call.h"
#include "levin/strategies/process/shm_segment.h"

namespace levin {

class ShmWork;

/// The calls of a group proceed in their order, on contiguous CPU tensors. A small one is completed by its caller if
/// the other ranks come soon; otherwise by a thread, while the caller continues. A work fails with a RankError that
/// names the rank which has ended, or has not come within the timeout; all later ones fail with the same.
class ShmBackend final : public RankBackend {
 public:
  ShmBackend(std::unique_ptr<ShmSegment> segment, std::chrono::milliseconds timeout);
  /// Calls in progress end with an error.
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void abort() override { segment_->close(); }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  using Clock = ShmSegment::Clock;

  /// `title`: in profiles.
  c10::intrusive_ptr<c10d::Work> start(ShmCall call, c10d::OpType type, const char* title,
                                       std::chrono::milliseconds timeout);
  void run_queue();

  std::unique_ptr<ShmSegment> segment_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<ShmWork>> queue_;  // its first one is in progress
  std::exception_ptr failure_;
  bool ends_ = false;
  std::thread thread_;  // started by the first call that needs it
};

}  // namespace levin
