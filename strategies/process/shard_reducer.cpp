#include "levin/strategies/process/shard_reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "levin/libtorch/graph_nodes.h"
#include "levin/libtorch/operator_watch.h"

namespace levin {

namespace {

// At most this many reductions, each with the whole gradients of a unit, are in flight; then backward waits.
constexpr size_t kMaxMessages = 2;

void drop_gradient(const at::Tensor& param) {
  param.mutable_grad() = at::Tensor();
}

}  // namespace

struct ShardReducer::Progress {
  std::vector<bool> seen;              // by entry, in this backward
  std::vector<bool> used;              // by entry: has a gradient that is not yet assigned to the parameter
  size_t missing = 0;                  // gradients that this backward has not yet computed
  at::Tensor grad;                     // reduced: the flat whole in stage 1, otherwise this rank's part
  std::vector<at::Tensor> handed_out;  // by entry: the gradients assigned to the parameters
};

struct ShardReducer::Message {
  size_t unit = 0;
  at::Tensor flat;  // of this rank's gradients
  at::Tensor part;  // of the sum; undefined in stage 1, where the sum is in `flat`
  c10::intrusive_ptr<c10d::Work> work;
};

ShardReducer::ShardReducer(Units& units, c10::intrusive_ptr<c10d::ProcessGroup> group, Options options)
    : units_(units), group_(std::move(group)), options_(std::move(options)), progress_(units.size()) {
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto& entries = units_[u]->entries();
    progress_[u].seen.resize(entries.size());
    progress_[u].used.resize(entries.size());
    progress_[u].handed_out.resize(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      set_gradient_hook(entries[i].param, [this, u, i] { on_gradient(u, i); });
    }
  }
}

ShardReducer::~ShardReducer() {
  for (const auto& unit : units_) {
    for (const auto& entry : unit->entries()) {
      set_gradient_hook(entry.param, nullptr);
    }
  }
  for (Message& message : messages_) {
    try {
      message.work->wait();
    } catch (const std::exception&) {
      // The run has already failed and reported it.
    }
  }
}

bool ShardReducer::has_shards() const {
  if (options_.keeps_whole) return false;
  for (size_t u = 0; u < units_.size(); ++u) {
    for (size_t i = 0; i < units_[u]->entries().size(); ++i) {
      const at::Tensor& grad = units_[u]->entries()[i].param.grad();
      if (grad.defined() && grad.is_same(progress_[u].handed_out[i])) return true;
    }
  }
  return false;
}

void ShardReducer::begin() {
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  messages_.clear();  // left by a backward that failed
  next_ = 0;
  active_ = true;
  for (size_t u = 0; u < units_.size(); ++u) {
    Progress& progress = progress_[u];
    std::fill(progress.seen.begin(), progress.seen.end(), false);
    progress.missing = 0;
    for (const auto& entry : units_[u]->entries()) progress.missing += entry.param.requires_grad() ? 1 : 0;
    keep_earlier(u);
  }
}

// Earlier gradients: shards that were assigned to parameters are kept separately, because autograd would add full
// gradients to them. In stage 3 backward leaves only shards, so a full gradient was restored from a checkpoint and is
// already reduced.
void ShardReducer::keep_earlier(size_t u) {
  Progress& progress = progress_[u];
  const auto& entries = units_[u]->entries();
  bool any = false;
  if (!options_.keeps_whole) {
    if (!progress.grad.defined()) progress.grad = at::zeros(units_[u]->part().sizes(), units_[u]->part().options());
    for (size_t i = 0; i < entries.size(); ++i) {
      const at::Tensor grad = entries[i].param.grad();
      const at::Tensor own = units_[u]->in_part(progress.grad, i);
      const bool is_part = grad.defined() && grad.is_same(progress.handed_out[i]);
      const bool is_whole = grad.defined() && !is_part && options_.takes_every_backward;
      if (is_whole) {
        own.copy_(units_[u]->range(i).of(grad));
        progress.used[i] = true;
      } else if (!is_part && own.numel() > 0) {
        own.zero_();
        progress.used[i] = false;
      }
      if (is_part || is_whole) drop_gradient(entries[i].param);
      any = any || is_part || is_whole;
    }
  }
  progress.handed_out.assign(entries.size(), at::Tensor());
  if (any) return;
  progress.grad = at::Tensor();
  std::fill(progress.used.begin(), progress.used.end(), false);
}

void ShardReducer::on_gradient(size_t u, size_t i) {
  if (!active_) return;
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  Progress& progress = progress_[u];
  if (progress.seen[i]) return;
  progress.seen[i] = true;
  if (--progress.missing > 0) return;
  if (options_.unit_is_done) options_.unit_is_done(u);
  send_complete();
}

void ShardReducer::send_complete() {
  while (next_ < units_.size()) {
    const size_t u = units_.size() - 1 - next_;
    if (progress_[u].missing > 0) return;
    ++next_;
    if (options_.next_is_sent) options_.next_is_sent();
    send(u);
  }
}

void ShardReducer::send_first(size_t count) {
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  for (size_t k = next_; k < std::min(count, units_.size()); ++k) progress_[units_.size() - 1 - k].missing = 0;
  send_complete();
}

// The unit's gradients, flattened and divided by the number of ranks, as c10d's reducer does before it sums.
at::Tensor ShardReducer::packed(size_t u) {
  const FlatUnit& unit = *units_[u];
  Progress& progress = progress_[u];
  const auto dtype = options_.dtype.value_or(unit.whole().scalar_type());
  at::Tensor flat = at::zeros(unit.whole().sizes(), unit.whole().options().dtype(dtype));
  for (size_t i = 0; i < unit.entries().size(); ++i) {
    const auto& entry = unit.entries()[i];
    const at::Tensor grad = entry.param.grad();
    if (!grad.defined() || !entry.param.requires_grad()) continue;
    if (grad.is_sparse()) throw Error("fsdp: " + sparse_gradient_text(entry.name));
    flat.narrow(0, entry.begin, entry.size).copy_(grad.reshape({-1}));
    drop_gradient(entry.param);
    progress.used[i] = true;
  }
  return flat.div_(options_.ranks);
}

void ShardReducer::send(size_t u) {
  bool trains = false;
  for (const auto& entry : units_[u]->entries()) trains = trains || entry.param.requires_grad();
  if (!trains) return;
  while (messages_.size() >= kMaxMessages) receive_oldest();
  Message message{u, packed(u), {}, {}};
  if (options_.keeps_whole) {
    std::vector<at::Tensor> tensors = {message.flat};
    message.work = group_->allreduce(tensors);
  } else {
    message.part = at::empty({units_[u]->part_size()}, message.flat.options());
    message.work = group_->_reduce_scatter_base(message.part, message.flat);
  }
  messages_.push_back(std::move(message));
}

void ShardReducer::receive_oldest() {
  const Message message = std::move(messages_.front());
  messages_.erase(messages_.begin());
  wait_for(*message.work, *group_, "reducing the gradients of " + unit_text(units_, message.unit));
  Progress& progress = progress_[message.unit];
  const at::Tensor& part = units_[message.unit]->part();
  if (options_.keeps_whole) {
    progress.grad = message.flat.to(part.scalar_type());
  } else if (progress.grad.defined()) {
    progress.grad.add_(message.part.to(part.options()));
  } else {
    progress.grad = message.part.to(part.options());
  }
}

// Reduces which parameters have a gradient on any rank: one without a gradient on all ranks gets none, as in a single
// process, so that weight decay does not change it. The flags are reduced with it.
at::Tensor ShardReducer::start_agreement(const at::Tensor& flags, c10::intrusive_ptr<c10d::Work>& work) {
  const auto device = units_.empty() ? at::Device(at::kCPU) : units_[0]->whole().device();
  prepare_used(device, flags.scalar_type());
  std::vector<at::Tensor> sums = {at::cat({flags.to(device), sent_used_numbers_})};
  work = group_->allreduce(sums);
  return sums[0];
}

// Mostly the same in every step: then nothing is copied to the device.
void ShardReducer::prepare_used(at::Device device, at::ScalarType type) {
  std::vector<bool> used;
  for (const Progress& progress : progress_) used.insert(used.end(), progress.used.begin(), progress.used.end());
  if (sent_used_numbers_.defined() && sent_used_numbers_.scalar_type() == type && used == sent_used_) return;
  const at::Tensor numbers = at::empty({static_cast<int64_t>(used.size())}, at::kDouble);
  std::copy(used.begin(), used.end(), numbers.mutable_data_ptr<double>());
  sent_used_ = std::move(used);
  sent_used_numbers_ = numbers.to(at::TensorOptions(type).device(device));
}

// Whether this rank has a gradient of every parameter that is trained, so that others need not be asked.
bool ShardReducer::knows_used() const {
  for (size_t u = 0; u < units_.size(); ++u) {
    for (size_t i = 0; i < progress_[u].used.size(); ++i) {
      if (!progress_[u].used[i] && units_[u]->entries()[i].param.requires_grad()) return false;
    }
  }
  return true;
}

// `sums`: see start_agreement(). Reads them, so the host waits for the device.
void ShardReducer::read_used(const at::Tensor& sums) {
  const at::Tensor here = sums.to(at::kCPU, at::kDouble);
  const auto* used = here.const_data_ptr<double>() + kRankFlags;
  for (Progress& progress : progress_) {
    for (size_t i = 0; i < progress.used.size(); ++i) progress.used[i] = *used++ > 0;
  }
}

at::Tensor ShardReducer::end(const at::Tensor& flags) {
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  active_ = false;
  for (Progress& progress : progress_) progress.missing = 0;  // the loss does not depend on the missing ones
  send_complete();
  c10::intrusive_ptr<c10d::Work> work;
  at::Tensor sums;
  if (flags.defined()) sums = start_agreement(flags, work);
  while (!messages_.empty()) receive_oldest();
  if (flags.defined()) {
    wait_for(*work, *group_, "agreeing on the step's gradients");
    if (!knows_used()) read_used(sums);
  }
  for (size_t u = 0; u < units_.size(); ++u) hand_out(u, !flags.defined());
  return flags.defined() ? sums.narrow(0, 0, static_cast<int64_t>(kRankFlags)) : at::Tensor();
}

// `all`: inside an accumulation window it is not yet known which parameters have a gradient on another rank.
void ShardReducer::hand_out(size_t u, bool all) {
  const FlatUnit& unit = *units_[u];
  Progress& progress = progress_[u];
  if (!progress.grad.defined()) return;
  for (size_t i = 0; i < unit.entries().size(); ++i) {
    const auto& entry = unit.entries()[i];
    if (!(all ? entry.param.requires_grad() : progress.used[i])) {
      drop_gradient(entry.param);
      continue;
    }
    at::Tensor grad = options_.keeps_whole ? progress.grad.narrow(0, entry.begin, entry.size).view(entry.shape)
                                           : unit.in_part(progress.grad, i);
    progress.handed_out[i] = grad;
    if (grad.numel() > 0) entry.param.mutable_grad() = grad;
  }
  if (options_.keeps_whole) progress.grad = at::Tensor();
}

}  // namespace levin
