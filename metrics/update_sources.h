// Records where a metric's samples come from: one object must not mix samples of training and validation, and the value
// of one loader must not contain samples of another loader. Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace levin::metrics {

class Metric;

/// The stage, hook and loader that run while a metric is updated.
struct UpdateSource {
  std::string_view stage = "";  // "training" or "validation", whose samples are kept apart; "": another
  std::string_view hook = "";   // for messages; outlives the run
  int64_t loader = -1;          // of an evaluation; -1: none
};

struct SourceRecord;

/// A scope in which an update throws Error if it adds samples of one stage to a metric that holds samples of the
/// other stage. The error names the metric and both hooks.
class UpdateSources {
 public:
  explicit UpdateSources(std::function<UpdateSource()> running);
  ~UpdateSources();
  UpdateSources(const UpdateSources&) = delete;
  UpdateSources& operator=(const UpdateSources&) = delete;

 private:
  std::shared_ptr<SourceRecord> record_;
};

/// Called before the metric is reset because the running stage logs it, by `who`: throws Error if it holds samples of
/// the other stage, which would be lost.
void check_reset(const Metric& metric, const std::string& who);

/// Claims the metric, logged by `who`, for the value of one loader. Throws Error if it holds samples of another loader,
/// or if an update adds some before the metric is reset.
void claim_for_loader(Metric& metric, const std::string& who, int64_t loader);

}  // namespace levin::metrics
