// Undoes updates of metrics: for passes whose results are not used. Internal.
#pragma once

#include <memory>
#include <vector>

namespace levin::metrics {

class Metric;
struct UndoRecord;

/// An observer of metrics: receives their updates and resets in the threads where it is registered.
struct UpdateRecord {
  virtual ~UpdateRecord() = default;
  virtual void before_change(Metric&) {}
  /// Before update() adds samples. What it throws ends the update.
  virtual void before_update(Metric&) {}
  /// The metric has accumulated nothing.
  virtual void emptied(const Metric&) {}

 protected:
  struct Content;
  [[nodiscard]] static Content content_of(const Metric& metric);
  static void put_back(Metric& metric, const Content& content);
};

/// A scope that records, for each metric that changes in this thread, what it had accumulated before. Scopes may be
/// nested. A metric that is destroyed is forgotten.
class UpdateUndo {
 public:
  UpdateUndo();
  ~UpdateUndo();
  UpdateUndo(const UpdateUndo&) = delete;
  UpdateUndo& operator=(const UpdateUndo&) = delete;

  /// Puts back what all metrics had accumulated when the scope began. May be called several times.
  void restore();

 private:
  std::shared_ptr<UndoRecord> record_;
};

/// The records that a thread knows, until they are destroyed. A thread that computes a part of a batch takes over the
/// records of the thread that divided the batch.
using UpdateRecords = std::vector<std::weak_ptr<UpdateRecord>>;
[[nodiscard]] UpdateRecords update_records();
/// Registers a record in the calling thread, and removes records that were destroyed.
void add_update_record(const std::shared_ptr<UpdateRecord>& record);
/// Sets the calling thread's records; returns its previous ones.
UpdateRecords exchange_update_records(UpdateRecords records);

}  // namespace levin::metrics
