// A pass over a loader, up to a limit.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "levin/core/device_work.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"

namespace levin {

/// The batches of a pass. It reads ahead where necessary, so that it knows whether the current batch is the last.
class BatchStream {
 public:
  /// `limit`: the maximum number of batches. A loader of unknown length is read one batch ahead, if it allows that.
  BatchStream(Loader& loader, int64_t limit)
      : loader_(loader),
        limit_(limit),
        sized_(loader.num_batches().has_value()),
        ahead_mode_(!sized_ && loader.may_be_read_ahead()) {}

  /// Makes the stream fetch each batch, and begin its copy to the device, while the batch before it is computed. Called
  /// before start(). Does nothing if the loader may not be read ahead.
  void copy_ahead(DeviceCopier& copier) {
    if (!loader_.may_be_read_ahead()) return;
    copier_ = &copier;
    ahead_mode_ = true;
  }

  /// Makes the copy of a batch ahead begin with send_ahead(), or at the latest with next(). Called after copy_ahead(),
  /// for a device that is idle until the batch before is computed: until then the copy, and the host's work for it,
  /// would overlap with nothing.
  void defer_copies() { defers_ = true; }
  /// Begins to copy the batch that was fetched ahead, if that has not begun.
  void send_ahead();

  /// Makes the pass end for all ranks when it ends for one, if its length is not known from the start. `all_have`
  /// returns whether every rank has another batch.
  void agree_by(std::function<bool(bool)> all_have) { all_have_ = std::move(all_have); }

  /// Begins a pass, or continues one with batch `first`.
  void start(int64_t epoch, int64_t first = 0);

  /// Fetches the next batch; returns false at the end.
  bool next(Batch& batch);

  /// Returns whether the loader has said how many batches a pass has.
  [[nodiscard]] bool is_sized() const { return sized_; }
  /// Returns the index of the batch last returned by next().
  [[nodiscard]] int64_t index() const { return index_; }
  /// Returns whether another batch will come; true if that is not known.
  [[nodiscard]] bool has_next() const;
  /// Returns whether the batch last returned is the last; false if that is not known.
  [[nodiscard]] bool is_last() const { return is_last_; }

  /// Prepares for a different pass over the same loader; next() then continues this pass where it was.
  void lend_loader();

  /// Returns the loader's state before the batch last returned by next(), or after it, even if another was fetched.
  [[nodiscard]] const State& state_before() const { return before_; }
  [[nodiscard]] State state_after() const;

 private:
  Loader& loader_;
  int64_t limit_;
  bool sized_;
  bool ahead_mode_;  // one batch is read ahead
  DeviceCopier* copier_ = nullptr;
  int64_t index_ = -1;
  bool is_last_ = false;
  bool has_ahead_ = false;
  bool defers_ = false;
  bool is_sent_ = true;  // there is nothing to send
  Batch ahead_ = {};
  int64_t epoch_ = 0;
  State before_ = {};                         // see state_before()
  State before_ahead_ = {};                   // before the batch ahead was fetched
  std::optional<State> lent_ = std::nullopt;  // the loader's state when it was lent; unset: it has this pass
  std::function<bool(bool)> all_have_ = nullptr;

  [[nodiscard]] bool fetch_ahead();
  bool fetch(Batch& batch);
  void start_loader(int64_t first);
};

}  // namespace levin
