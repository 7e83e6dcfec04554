// While a step is recorded, what the host must do after each replay is noted. Internal.
#pragma once

#include <cstdint>
#include <utility>

#include "levin/metrics/update_count.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

/// During its lifetime, notes go to `notes`.
class RecordingScope {
 public:
  RecordingScope(Run& run, StepNotes& notes)
      : run_(run), outer_(std::exchange(run.fit.recording, &notes)), updates_(metrics::updates_of_this_thread()) {}
  ~RecordingScope() { run_.fit.recording = outer_; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

  /// After the step: refuse_recording() if it has updated a metric, which also counts on the host.
  void check_metrics() const {
    if (metrics::updates_of_this_thread() == updates_) return;
    refuse_recording(run_,
                     "the step updates a metric, which a recorded step would not do at each batch; update it in "
                     "the hook after the batch");
  }

 private:
  Run& run_;
  StepNotes* outer_;
  int64_t updates_;
};

}  // namespace levin
