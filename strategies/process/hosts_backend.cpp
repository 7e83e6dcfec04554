#include "levin/strategies/process/hosts_backend.h"

#include <algorithm>
#include <utility>

#include "levin/core/process/start_thread.h"
#include "levin/strategies/process/future_work.h"

namespace levin {

namespace {

using Op = c10d::ReduceOp::RedOpType;

// So that a host's ranks see that their first one, which waits for another host, has failed, and do not blame it.
constexpr std::chrono::milliseconds kLeadersFirst{5000};

// What both shared memory and Gloo reduce; averages are sums for Gloo.
bool is_reducible(const std::vector<at::Tensor>& tensors, Op op) {
  if (tensors.size() != 1 || !tensors[0].is_contiguous() || tensors[0].numel() == 0) return false;
  const auto type = tensors[0].scalar_type();
  if (op == Op::AVG) return at::isFloatingType(type);
  if (op != Op::SUM && op != Op::PRODUCT && op != Op::MIN && op != Op::MAX) return false;
  const auto types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kChar};
  return std::find(types.begin(), types.end(), type) != types.end();
}

}  // namespace

class HostsWork final : public FutureWork {
 public:
  HostsWork(const std::vector<at::Tensor>& tensors, int rank, Op op, std::chrono::milliseconds timeout)
      : FutureWork(tensors, rank, c10d::OpType::ALLREDUCE, "shm and gloo:all_reduce"),
        tensors_(tensors),
        op_(op),
        timeout_(timeout) {}

  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }
  [[nodiscard]] Op op() const { return op_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  std::vector<at::Tensor> tensors_;
  Op op_;
  std::chrono::milliseconds timeout_;
};

HostsBackend::HostsBackend(Parts parts, int rank, int size, std::chrono::milliseconds timeout)
    : RankBackend(rank, size), parts_(std::move(parts)), timeout_(timeout) {}

HostsBackend::~HostsBackend() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (!queue_.empty()) {
      for (const Part& part : {parts_.host, parts_.leaders}) {
        if (part) abort_calls(*part);
      }
    }
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void HostsBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (const Part& part : {parts_.host, parts_.leaders, parts_.all}) {
    if (part) set_timeout(*part, timeout);
  }
}

c10::intrusive_ptr<c10d::Work> HostsBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                       const c10d::AllreduceOptions& options) {
  if (!is_reducible(tensors, options.reduceOp)) return parts_.all->allreduce(tensors, options);
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
  auto work = c10::make_intrusive<HostsWork>(tensors, getRank(), options.reduceOp.op_, timeout);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(work);
    if (!thread_.joinable()) thread_ = start_thread("reduces gradients", [this] { run_queue(); });
  }
  changed_.notify_one();
  return work;
}

void HostsBackend::run_queue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto work = queue_.front();
    auto failure = failure_;
    lock.unlock();
    try {
      if (!failure) reduce_all(*work);
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

void HostsBackend::reduce_all(const HostsWork& work) {
  std::vector<at::Tensor> tensors = work.tensors();
  const bool is_average = work.op() == Op::AVG;
  const Op op = is_average ? Op::SUM : work.op();
  if (parts_.host) {
    c10d::ReduceOptions options;
    options.reduceOp = op;
    options.timeout = work.timeout();
    parts_.host->reduce(tensors, options)->wait();
  }
  if (parts_.leaders) {
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    options.timeout = work.timeout();
    parts_.leaders->allreduce(tensors, options)->wait();
    if (is_average) tensors[0].div_(getSize());
  }
  if (parts_.host) {
    c10d::BroadcastOptions options;
    options.timeout = work.timeout() + (parts_.leaders ? std::chrono::milliseconds(0) : kLeadersFirst);
    parts_.host->broadcast(tensors, options)->wait();
  }
}

}  // namespace levin
