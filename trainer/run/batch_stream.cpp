#include "levin/trainer/run/batch_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "levin/data/batch_rows.h"

namespace levin {

namespace {

// The tensors of the batch and of the values in it.
std::vector<at::Tensor> all_tensors(Batch& batch) {
  std::vector<at::Tensor> all = batch.tensors;
  visit_values(batch, [&](at::Tensor& tensor) { all.push_back(tensor); });
  return all;
}

void send_batch(DeviceCopier& copier, Batch& batch) {
  if (!has_values(batch)) return copier.send(batch.tensors);
  std::vector<at::Tensor> all = all_tensors(batch);
  copier.send(all);
  size_t next = 0;
  for (at::Tensor& tensor : batch.tensors) tensor = all[next++];
  visit_values(batch, [&](at::Tensor& tensor) { tensor = all[next++]; });
}

void receive_batch(DeviceCopier& copier, Batch& batch) {
  if (!has_values(batch)) return copier.receive(batch.tensors);
  copier.receive(all_tensors(batch));
}

}  // namespace

void BatchStream::start(int64_t epoch, int64_t first) {
  epoch_ = epoch;
  lent_.reset();
  start_loader(first);
  index_ = first - 1;
  is_last_ = false;
  has_ahead_ = ahead_mode_ && first < limit_ && fetch_ahead();
  send_ahead();
}

void BatchStream::send_ahead() {
  if (!std::exchange(is_sent_, true)) send_batch(*copier_, ahead_);
}

void BatchStream::start_loader(int64_t first) {
  loader_.pin_memory(copier_ != nullptr && copier_->uses_pinned_memory());
  loader_.start(epoch_, first);
}

void BatchStream::lend_loader() {
  if (!lent_) lent_ = loader_.state_dict();
}

State BatchStream::state_after() const {
  if (has_ahead_) return before_ahead_;
  return lent_ ? *lent_ : loader_.state_dict();
}

bool BatchStream::fetch(Batch& batch) {
  if (lent_) {
    if (!lent_->empty()) loader_.load_state_dict(*lent_);
    start_loader(index_ + 1);
    lent_.reset();
  }
  return loader_.next(batch);
}

bool BatchStream::fetch_ahead() {
  before_ahead_ = lent_ ? *lent_ : loader_.state_dict();
  const bool more = fetch(ahead_);
  is_sent_ = !more || copier_ == nullptr;
  if (!defers_) send_ahead();
  return all_have_ && !sized_ ? all_have_(more) : more;
}

bool BatchStream::next(Batch& batch) {
  if (index_ + 1 >= limit_) return false;
  if (!ahead_mode_) {
    before_ = lent_ ? *lent_ : loader_.state_dict();
    const bool more = fetch(batch);
    if (!(all_have_ && !sized_ ? all_have_(more) : more)) return false;
    ++index_;
    is_last_ = index_ + 1 >= std::min(limit_, loader_.num_batches().value_or(limit_));
    return true;
  }
  if (!has_ahead_) return false;
  send_ahead();
  batch = std::move(ahead_);
  before_ = std::move(before_ahead_);
  if (copier_ != nullptr) receive_batch(*copier_, batch);
  ++index_;
  has_ahead_ = index_ + 1 < limit_ && fetch_ahead();
  is_last_ = !has_ahead_;
  return true;
}

bool BatchStream::has_next() const {
  if (ahead_mode_) return has_ahead_;
  return index_ + 1 < std::min(limit_, loader_.num_batches().value_or(limit_));
}

}  // namespace levin
