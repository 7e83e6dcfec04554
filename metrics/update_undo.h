// Undoes updates of metrics: for passes whose results are not used. Internal.
#pragma once

#include <memory>
#include <vector>

namespace levin::metrics {

struct UpdateRecord;

/// During its lifetime, notes what each metric that changes in this thread had accumulated before. Such scopes may be
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
  std::shared_ptr<UpdateRecord> record_;
};

/// The open scopes of a thread. A thread that computes a part of a batch takes over those of the thread that cut it.
using UpdateRecords = std::vector<std::weak_ptr<UpdateRecord>>;
[[nodiscard]] UpdateRecords update_records();
/// Makes them the calling thread's; returns those that it had.
UpdateRecords exchange_update_records(UpdateRecords records);

}  // namespace levin::metrics
