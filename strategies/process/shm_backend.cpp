#include "levin/strategies/process/shm_backend.h"

#include <algorithm>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/start_thread.h"
#include "levin/strategies/process/future_work.h"
#include "levin/strategies/process/rank_error.h"

namespace levin {

namespace {

constexpr int64_t kInlineBytes = 512 << 10;
constexpr std::chrono::microseconds kInlineWait{200};  // after it, the caller's time is worth more than a thread switch

ShmReduction shm_reduction(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ShmReduction::sum;
    case c10d::ReduceOp::AVG: return ShmReduction::average;
    case c10d::ReduceOp::PRODUCT: return ShmReduction::product;
    case c10d::ReduceOp::MIN: return ShmReduction::min;
    case c10d::ReduceOp::MAX: return ShmReduction::max;
    default: break;
  }
  throw Error("process_group_backend shm: reductions are SUM, AVG, PRODUCT, MIN and MAX, not c10d's number " +
              std::to_string(op.op_) + ". Use process_group_backend: gloo.");
}

template <typename T>
const T& only(const std::vector<T>& all) {
  if (all.size() == 1) return all[0];
  throw Error("process_group_backend shm: a call takes one tensor, or one list, on each rank, not " +
              std::to_string(all.size()) + ".");
}

// One contiguous tensor as one part for each rank.
std::vector<at::Tensor> shm_parts(const at::Tensor& whole, int ranks, const at::Tensor& part) {
  if (!whole.is_contiguous() || whole.numel() != part.numel() * ranks) {
    throw Error("process_group_backend shm: a contiguous tensor of " + std::to_string(part.numel() * ranks) +
                " elements is needed, " + std::to_string(ranks) + " times the elements of each rank, not a tensor of " +
                std::to_string(whole.numel()) + ".");
  }
  const at::Tensor flat = whole.view({-1});
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(flat.narrow(0, rank * part.numel(), part.numel()));
  return parts;
}

}  // namespace

class ShmWork final : public FutureWork {
 public:
  ShmWork(ShmCall call, int rank, c10d::OpType type, const char* title, std::chrono::milliseconds timeout)
      : FutureWork(call.outputs, rank, type, title), call_(std::move(call)), timeout_(timeout) {}

  [[nodiscard]] const ShmCall& call() const { return call_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

  // Goes on with the call until it is done (true) or `until`.
  bool advance(ShmSegment& segment, ShmSegment::Clock::time_point until) {
    for (; round_ < call_.rounds; ++round_, announced_ = false) {
      if (!std::exchange(announced_, true)) {
        call_.write(round_, ShmSlots(segment, segment.next_round()));
        segment.announce(call_.label);
      }
      if (!segment.await_all(until)) return false;
      call_.read(round_, ShmSlots(segment, segment.next_round() - 1));
    }
    return true;
  }

 private:
  ShmCall call_;
  int64_t round_ = 0;
  bool announced_ = false;
  std::chrono::milliseconds timeout_;
};

ShmBackend::ShmBackend(std::unique_ptr<ShmSegment> segment, std::chrono::milliseconds timeout)
    : RankBackend(segment->rank(), segment->size()), segment_(std::move(segment)), timeout_(timeout) {}

ShmBackend::~ShmBackend() {
  segment_->close();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

c10::intrusive_ptr<c10d::Work> ShmBackend::start(ShmCall call, c10d::OpType type, const char* title,
                                                 std::chrono::milliseconds timeout) {
  const bool is_small = call.bytes <= kInlineBytes;
  if (timeout == c10d::kUnsetTimeout) timeout = timeout_;
  auto work = c10::make_intrusive<ShmWork>(std::move(call), getRank(), type, title, timeout);
  std::unique_lock lock(mutex_);
  bool is_done = failure_ != nullptr;
  if (!is_done && queue_.empty() && is_small) {
    try {
      is_done = work->advance(*segment_, Clock::now() + std::min<std::chrono::microseconds>(timeout, kInlineWait));
    } catch (const RankError&) {
      failure_ = std::current_exception();
      is_done = true;
    }
  }
  if (is_done) {
    const auto failure = failure_;
    lock.unlock();  // the future may call what calls this again
    work->end(failure);
    return work;
  }
  queue_.push_back(work);
  if (!thread_.joinable()) thread_ = start_thread("reduces gradients", [this] { run_queue(); });
  lock.unlock();
  changed_.notify_one();
  return work;
}

void ShmBackend::run_queue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto work = queue_.front();
    auto failure = failure_;
    lock.unlock();
    try {
      if (!failure && !work->advance(*segment_, Clock::now() + work->timeout())) {
        throw RankError("Timed out waiting " + std::to_string(work->timeout().count()) + "ms for " +
                        segment_->missing());
      }
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    queue_.pop_front();
    lock.unlock();
    work->end(failure);
    lock.lock();
  }
}

c10::intrusive_ptr<c10d::Work> ShmBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceOptions& options) {
  return start(shm_all_reduce(*segment_, only(tensors), shm_reduction(options.reduceOp)), c10d::OpType::ALLREDUCE,
               "shm:all_reduce", options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::reduce(std::vector<at::Tensor>& tensors,
                                                  const c10d::ReduceOptions& options) {
  return start(
      shm_reduce(*segment_, only(tensors), shm_reduction(options.reduceOp), static_cast<int>(options.rootRank)),
      c10d::OpType::REDUCE, "shm:reduce", options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                     const c10d::BroadcastOptions& options) {
  return start(shm_broadcast(*segment_, only(tensors), static_cast<int>(options.rootRank)), c10d::OpType::BROADCAST,
               "shm:broadcast", options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) {
  return start(shm_gather(*segment_, only(outputs), only(inputs)), c10d::OpType::ALLGATHER, "shm:all_gather",
               options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::AllgatherOptions& options) {
  ShmCall call = shm_gather(*segment_, shm_parts(output, getSize(), input), input);
  call.outputs = {output};
  return start(std::move(call), c10d::OpType::_ALLGATHER_BASE, "shm:_all_gather_base", options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                          std::vector<std::vector<at::Tensor>>& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  return start(shm_reduce_scatter(*segment_, only(outputs), only(inputs), shm_reduction(options.reduceOp)),
               c10d::OpType::REDUCE_SCATTER, "shm:reduce_scatter", options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::ReduceScatterOptions& options) {
  return start(
      shm_reduce_scatter(*segment_, output, shm_parts(input, getSize(), output), shm_reduction(options.reduceOp)),
      c10d::OpType::_REDUCE_SCATTER_BASE, "shm:_reduce_scatter_base", options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                                  std::vector<at::Tensor>& inputs, const c10d::GatherOptions& options) {
  const int root = static_cast<int>(options.rootRank);
  const auto parts = getRank() == root ? only(outputs) : std::vector<at::Tensor>();
  return start(shm_gather(*segment_, parts, only(inputs), root), c10d::OpType::GATHER, "shm:gather", options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::scatter(std::vector<at::Tensor>& outputs,
                                                   std::vector<std::vector<at::Tensor>>& inputs,
                                                   const c10d::ScatterOptions& options) {
  const int root = static_cast<int>(options.rootRank);
  const auto parts = getRank() == root ? only(inputs) : std::vector<at::Tensor>();
  return start(shm_scatter(*segment_, only(outputs), parts, root), c10d::OpType::SCATTER, "shm:scatter",
               options.timeout);
}

c10::intrusive_ptr<c10d::Work> ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return start(shm_barrier(), c10d::OpType::BARRIER, "shm:barrier", options.timeout);
}

}  // namespace levin
