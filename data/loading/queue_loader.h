// A loader of data that arrives while a loop trains: other threads push samples or batches, next() takes them.
//
//   std::jthread simulation;  // declared before the queue: the queue's destructor releases it, then it is joined
//   levin::QueueLoader queue({.capacity = 4, .batch_size = 32});
//   simulation = std::jthread([producer = queue.producer()] {
//     while (auto sample = simulate()) {
//       if (!producer.push({sample->x, sample->y})) return;  // nobody trains any more
//     }
//     producer.close();
//   });
//   trainer.fit(model, queue);
//
// The queue is bounded: a full queue makes push() wait, or drops its oldest batch. It is never read ahead of the
// weights. Each rank has a queue of its own, and trains on what its own threads push.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/value.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"
#include "levin/data/loading/batch_fetcher.h"

namespace levin {

class BatchQueue;
struct ProducerHandle;

/// What pushing into a full queue does. wait: blocks until next() has taken a batch; drop_oldest: removes the oldest
/// batch and never blocks.
enum class WhenFull { wait, drop_oldest };

template <>
struct EnumNames<WhenFull> {
  static constexpr EnumName<WhenFull> names[] = {{"wait", WhenFull::wait}, {"drop_oldest", WhenFull::drop_oldest}};
};

/// Options of QueueLoader.
struct QueueLoaderOptions {
  int64_t capacity = 8;    // complete batches in the queue
  int64_t batch_size = 1;  // samples that push() collates; batches of push_batch() keep their size
  EnumOption<WhenFull> when_full = WhenFull::wait;
  bool drop_last = false;  // close() drops the samples of an incomplete batch
  template <class = void>
  static auto fields() {
    using O = QueueLoaderOptions;
    return levin::fields(
        field("capacity", &O::capacity, "complete batches in the queue").min(1),
        field("batch_size", &O::batch_size, "samples that push() collates to a batch").min(1),
        field("when_full", &O::when_full, "wait: push() blocks; drop_oldest: the oldest batch is removed"),
        field("drop_last", &O::drop_last, "leave out the incomplete batch at the end"));
  }
};

/// What has happened to the samples of a queue: pushed = delivered + dropped + waiting.
struct QueueCounts {
  int64_t pushed = 0;
  int64_t delivered = 0;  // by next()
  int64_t dropped = 0;    // by drop_oldest, and by drop_last
  int64_t waiting = 0;    // in the queue, also in an incomplete batch
};

/// The end of a queue at which samples arrive. Copies are handles of the same queue; any number of threads may use one
/// or several, and a handle may outlive the loader. The queue keeps the tensors without copying them: do not change
/// them after a push. Functions named push return false if the queue is closed or its loader was destroyed, also while
/// they wait; the sample is then not used. They throw DataError for a sample without tensors.
class QueueProducer {
 public:
  explicit QueueProducer(std::shared_ptr<const ProducerHandle> handle) : handle_(std::move(handle)) {}

  /// Adds a sample, whose tensors have no batch dimension, and waits while a batch that it completes has no room.
  bool push(Batch sample) const;
  /// Adds a batch, and waits while the queue is full. An incomplete batch of push() is completed later.
  bool push_batch(Batch batch) const;
  /// Same as above for at most `timeout`; returns false also if there was no room until then.
  bool push_for(Batch sample, std::chrono::milliseconds timeout) const;
  bool push_batch_for(Batch batch, std::chrono::milliseconds timeout) const;
  /// Same as above without waiting.
  bool try_push(Batch sample) const { return push_for(std::move(sample), {}); }
  bool try_push_batch(Batch batch) const { return push_batch_for(std::move(batch), {}); }

  /// Ends the data: next() gives what is in the queue, and then ends the pass. Later calls do nothing.
  void close() const;
  /// Same as above, but next() then throws `error`, a producer's exception, instead of ending the pass.
  void close(std::exception_ptr error) const;
  /// Returns whether a push can no longer succeed.
  [[nodiscard]] bool is_closed() const;
  [[nodiscard]] QueueCounts counts() const;

 private:
  std::shared_ptr<const ProducerHandle> handle_;
};

/// A bounded queue as a loader of unknown length. Its destructor releases the threads that wait in push(). All passes
/// share the queue: a pass begins with the oldest batch, and ends when the queue is closed and empty, or at the
/// Trainer's limit_train_batches.
///
/// Ranks: shard() leaves the queue alone, since other ranks have other data. The pass ends on all ranks when it ends on
/// one; a batch that another rank has taken by then is not trained.
///
/// Checkpoints hold the counts of samples delivered and dropped. What waits in the queue is not saved: a program that
/// resumes produces it again, from the weights that it has then. For data that must survive, use a ReplayBuffer.
class QueueLoader final : public Loader {
 public:
  using Options = QueueLoaderOptions;

  explicit QueueLoader(Defaults = {}) : QueueLoader(QueueLoaderOptions()) {}
  /// `collate` makes batches of pushed samples instead of stacking. Throws ConfigError for options out of range.
  explicit QueueLoader(QueueLoaderOptions options, Collate collate = nullptr);
  ~QueueLoader() override;
  QueueLoader(QueueLoader&&) = default;  // and no copies: a queue has one consumer

  /// Returns a handle for threads that push. Any thread may call it.
  [[nodiscard]] QueueProducer producer() const;
  [[nodiscard]] QueueCounts counts() const;

  /// Begins a pass with what is in the queue. A stream has no batches to skip, so `first_batch` changes nothing.
  void start(int64_t /*epoch*/, int64_t /*first_batch*/ = 0) override {}
  /// Takes the oldest batch, and waits for one if there is none. Throws the error of close(), DataError if samples
  /// cannot be collated, whose batch is then lost, and DataError if it would wait forever, because all handles were
  /// destroyed and none closed the queue. While it waits, a request to stop the run (Ctrl-C) has no effect.
  bool next(Batch& batch) override;
  [[nodiscard]] bool may_be_read_ahead() const override { return false; }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return std::nullopt; }
  bool shard(int64_t /*rank*/, int64_t /*world_size*/, bool /*padded*/) override { return true; }
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  [[nodiscard]] ConfigNode written_options() const override;

 private:
  [[nodiscard]] Batch collated(std::vector<Batch> samples) const;

  QueueLoaderOptions options_;
  Collate collate_;                    // empty: stack
  std::shared_ptr<BatchQueue> queue_;  // null after a move
};

}  // namespace levin
