#include "levin/data/loading/queue_loader.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/core/process/main_guard.h"
#include "levin/data/loading/sample_stacker.h"

namespace levin {

namespace {

using PushDeadline = std::optional<std::chrono::steady_clock::time_point>;  // unset: waits without a limit

PushDeadline deadline_after(std::chrono::milliseconds timeout) {
  return std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(1 << 16));
}

void check_not_empty(const Batch& pushed, const std::string& what) {
  if (pushed.empty()) throw DataError("QueueProducer: the " + what + " has no tensors. Push only what holds data.");
}

}  // namespace

// The queue itself, shared by its loader and its producers.
class BatchQueue {
 public:
  // What next() makes a batch of.
  struct Entry {
    std::vector<Batch> parts = {};  // samples to collate, or one batch
    bool is_batch = false;
    int64_t samples = 0;
  };

  explicit BatchQueue(const QueueLoaderOptions& options) : options_(options) {}

  bool push(Batch sample, PushDeadline deadline);
  bool push_batch(Batch batch, PushDeadline deadline);
  void close(std::exception_ptr error);
  void abandon();
  [[nodiscard]] bool is_closed() const;
  void add_producer();
  void remove_producer();
  // Waits for an entry; nullopt: the queue is closed and empty.
  std::optional<Entry> take();
  [[nodiscard]] QueueCounts counts() const;
  void set_counts(int64_t delivered, int64_t dropped);

 private:
  bool wait_for_room(std::unique_lock<std::mutex>& lock, const PushDeadline& deadline, bool is_batch);
  void enqueue(Entry entry);
  [[nodiscard]] bool is_orphaned() const { return had_producer_ && producers_ == 0; }

  const QueueLoaderOptions options_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_for_consumer_;
  std::condition_variable changed_for_producers_;
  std::deque<Entry> entries_ = {};
  Entry pending_ = {};  // the samples of the incomplete batch
  QueueCounts counts_ = {};
  bool closed_ = false;
  std::exception_ptr error_ = nullptr;  // of close()
  int64_t producers_ = 0;
  bool had_producer_ = false;
};

// Counts the copies of one QueueProducer as a producer, until the last is destroyed.
struct ProducerHandle {
  explicit ProducerHandle(std::shared_ptr<BatchQueue> shared) : queue(std::move(shared)) { queue->add_producer(); }
  ~ProducerHandle() { queue->remove_producer(); }
  ProducerHandle(const ProducerHandle&) = delete;
  ProducerHandle& operator=(const ProducerHandle&) = delete;

  std::shared_ptr<BatchQueue> queue;
};

// Only the sample that completes a batch needs room. Another producer may complete the batch while this one waits, so
// the condition is evaluated anew.
bool BatchQueue::wait_for_room(std::unique_lock<std::mutex>& lock, const PushDeadline& deadline, bool is_batch) {
  const auto may_push = [&] {
    const bool needs_room = is_batch || pending_.samples + 1 >= options_.batch_size;
    const bool has_room = std::ssize(entries_) < options_.capacity || options_.when_full == WhenFull::drop_oldest;
    return closed_ || !needs_room || has_room;
  };
  if (!deadline) {
    changed_for_producers_.wait(lock, may_push);
  } else if (!changed_for_producers_.wait_until(lock, *deadline, may_push)) {
    return false;
  }
  return !closed_;
}

void BatchQueue::enqueue(Entry entry) {
  if (options_.when_full == WhenFull::drop_oldest && std::ssize(entries_) >= options_.capacity) {
    counts_.dropped += entries_.front().samples;
    counts_.waiting -= entries_.front().samples;
    entries_.pop_front();
  }
  entries_.push_back(std::move(entry));
  changed_for_consumer_.notify_one();
}

bool BatchQueue::push(Batch sample, PushDeadline deadline) {
  check_not_empty(sample, "sample");
  std::unique_lock lock(mutex_);
  if (!wait_for_room(lock, deadline, /*is_batch=*/false)) return false;
  ++counts_.pushed;
  ++counts_.waiting;
  ++pending_.samples;
  pending_.parts.push_back(std::move(sample));
  if (pending_.samples == options_.batch_size) {
    enqueue(std::exchange(pending_, {}));
    changed_for_producers_.notify_all();  // the next samples need no room
  }
  return true;
}

bool BatchQueue::push_batch(Batch batch, PushDeadline deadline) {
  check_not_empty(batch, "batch");
  Entry entry{.is_batch = true, .samples = batch.size()};
  entry.parts.push_back(std::move(batch));
  std::unique_lock lock(mutex_);
  if (!wait_for_room(lock, deadline, /*is_batch=*/true)) return false;
  counts_.pushed += entry.samples;
  counts_.waiting += entry.samples;
  enqueue(std::move(entry));
  return true;
}

// The incomplete batch takes a place beyond the capacity: nothing follows it.
void BatchQueue::close(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  error_ = std::move(error);
  Entry last = std::exchange(pending_, {});
  if (options_.drop_last) {
    counts_.dropped += last.samples;
    counts_.waiting -= last.samples;
  } else if (last.samples > 0) {
    entries_.push_back(std::move(last));
  }
  changed_for_consumer_.notify_one();
  changed_for_producers_.notify_all();
}

// Nobody takes the entries any more: their memory is freed here, outside of the lock.
void BatchQueue::abandon() {
  std::deque<Entry> dropped;
  Entry incomplete;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(entries_);
  incomplete = std::exchange(pending_, {});
  counts_.dropped += std::exchange(counts_.waiting, 0);
  changed_for_producers_.notify_all();
}

bool BatchQueue::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void BatchQueue::add_producer() {
  const std::lock_guard lock(mutex_);
  ++producers_;
  had_producer_ = true;
}

void BatchQueue::remove_producer() {
  const std::lock_guard lock(mutex_);
  --producers_;
  changed_for_consumer_.notify_one();
}

std::optional<BatchQueue::Entry> BatchQueue::take() {
  std::unique_lock lock(mutex_);
  changed_for_consumer_.wait(lock, [&] { return !entries_.empty() || closed_ || is_orphaned(); });
  if (!entries_.empty()) {
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    counts_.delivered += entry.samples;
    counts_.waiting -= entry.samples;
    changed_for_producers_.notify_all();
    return entry;
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (closed_) return std::nullopt;
  throw DataError(
      "QueueLoader: the queue is empty, and every QueueProducer was destroyed without closing it. Call "
      "QueueProducer.close() when the data ends, and close(std::current_exception()) when a producer fails.");
}

QueueCounts BatchQueue::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void BatchQueue::set_counts(int64_t delivered, int64_t dropped) {
  const std::lock_guard lock(mutex_);
  counts_.delivered = delivered;
  counts_.dropped = dropped;
  counts_.pushed = delivered + dropped + counts_.waiting;
}

bool QueueProducer::push(Batch sample) const {
  return handle_->queue->push(std::move(sample), std::nullopt);
}

bool QueueProducer::push_batch(Batch batch) const {
  return handle_->queue->push_batch(std::move(batch), std::nullopt);
}

bool QueueProducer::push_for(Batch sample, std::chrono::milliseconds timeout) const {
  return handle_->queue->push(std::move(sample), deadline_after(timeout));
}

bool QueueProducer::push_batch_for(Batch batch, std::chrono::milliseconds timeout) const {
  return handle_->queue->push_batch(std::move(batch), deadline_after(timeout));
}

void QueueProducer::close() const {
  handle_->queue->close(nullptr);
}

void QueueProducer::close(std::exception_ptr error) const {
  handle_->queue->close(std::move(error));
}

bool QueueProducer::is_closed() const {
  return handle_->queue->is_closed();
}

QueueCounts QueueProducer::counts() const {
  return handle_->queue->counts();
}

QueueLoader::QueueLoader(QueueLoaderOptions options, Collate collate)
    : options_(checked(options, "QueueLoaderOptions")),
      collate_(std::move(collate)),
      queue_(std::make_shared<BatchQueue>(options_)) {}

QueueLoader::~QueueLoader() {
  if (queue_ != nullptr) queue_->abandon();
}

QueueProducer QueueLoader::producer() const {
  return QueueProducer(std::make_shared<const ProducerHandle>(queue_));
}

QueueCounts QueueLoader::counts() const {
  return queue_->counts();
}

bool QueueLoader::next(Batch& batch) {
  std::optional<BatchQueue::Entry> entry = queue_->take();
  if (!entry) return false;
  batch = entry->is_batch ? std::move(entry->parts[0]) : collated(std::move(entry->parts));
  return true;
}

namespace {

// The stacker's remedies are about a data set.
std::string in_words_of_push(std::string text) {
  constexpr std::string_view kOfDataset = "Make get() return";
  const size_t at = text.find(kOfDataset);
  return at == std::string::npos ? text : text.replace(at, kOfDataset.size(), "Push");
}

}  // namespace

Batch QueueLoader::collated(std::vector<Batch> samples) const {
  const at::NoGradGuard no_grad;
  try {
    return collate_ ? collate_(std::move(samples)) : stack_samples(samples);
  } catch (...) {
    throw DataError("QueueLoader: the batch could not be made of the samples that were pushed: " +
                    in_words_of_push(exception_text(std::current_exception())));
  }
}

State QueueLoader::state_dict() const {
  const QueueCounts now = counts();
  State state;
  state.set("delivered", now.delivered);
  state.set("dropped", now.dropped);
  return state;
}

void QueueLoader::load_state_dict(const State& saved) {
  const auto delivered = saved.get<int64_t>("delivered"), dropped = saved.get<int64_t>("dropped");
  if (delivered < 0 || dropped < 0) {
    throw CheckpointError("QueueLoader: the saved state counts " + std::to_string(delivered) + " delivered and " +
                          std::to_string(dropped) + " dropped samples, which must be >= 0.");
  }
  queue_->set_counts(delivered, dropped);
}

ConfigNode QueueLoader::written_options() const {
  return write_options(options_);
}

}  // namespace levin
