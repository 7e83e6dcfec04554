// c10d's collectives between ranks of several hosts, some of which share memory. A sum is taken within each host, in
// the order of ranks, then over hosts by their first ranks, which give it to the others, bitwise identical on every
// rank and in every run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "levin/libtorch/rank_backend.h"

namespace levin {

class HostsWork;

/// Sums, averages, products and extrema of numbers go through memory and between hosts; everything else through `all`.
/// Reductions proceed in their order, on a thread; after one has failed, all later ones fail with the same error.
class HostsBackend final : public RankBackend {
 public:
  using Part = c10::intrusive_ptr<c10d::Backend>;
  struct Parts {
    Part host;     // this host's ranks, the first of them rank 0; null: this one is alone
    Part leaders;  // first ranks of all hosts; null on the others
    Part all;
  };

  HostsBackend(Parts parts, int rank, int size, std::chrono::milliseconds timeout);
  /// Reductions in progress end with an error.
  ~HostsBackend() override;

  const std::string getBackendName() const override { return "shm and gloo"; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return parts_.all->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return parts_.all->allgather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    return parts_.all->_allgather_base(output, input, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override {
    return parts_.all->reduce_scatter(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    return parts_.all->_reduce_scatter_base(output, input, options);
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override {
    return parts_.all->gather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override {
    return parts_.all->scatter(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return parts_.all->barrier(options);
  }

 private:
  void run_queue();
  void reduce_all(const HostsWork& work);

  Parts parts_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<HostsWork>> queue_;
  std::exception_ptr failure_;
  bool ends_ = false;
  std::thread thread_;  // started by the first reduction
};

}  // namespace levin
