// Collects what one of several replicas or micro-batches logs for its share of a batch; the shares' values become one
// value for the batch. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/metrics/update_undo.h"
#include "levin/strategies/device_placement.h"
#include "levin/trainer/metrics.h"
#include "levin/trainer/step/step_context.h"

namespace levin {

/// The context of a step on one share, with the values that it logged.
struct StepShare final : StepContext {
  struct Logged {
    std::string name;
    at::Tensor value;  // on a device, or not one number; else undefined
    double number = 0;
    double weight = 1;  // number of samples
    LogOptions options = {};
    metrics::Metric* metric = nullptr;  // the replica's own
  };

  DeviceSlot slot = {};
  metrics::UpdateRecords updates = metrics::update_records();  // of the thread that made it
  int64_t samples = 1;
  std::vector<Logged> logged = {};
  Outputs outputs = {};         // of step_output, detached
  at::Tensor loss_weight = {};  // () set by its training_step; undefined: not set

  void log(std::string_view name, const at::Tensor& value, const LogOptions& options) override;
  void log(std::string_view name, double value, const LogOptions& options) override;
  void log(std::string_view name, metrics::Metric& metric, const LogOptions& options) override;
  void publish(std::string_view name, const at::Tensor& value) override { add_output(outputs, name, value); }
  void set_loss_weight(const at::Tensor& weight) override { loss_weight = weight.detach(); }
};

/// Returns the share that the calling thread computes; null: a whole batch.
[[nodiscard]] StepShare* this_share();

/// A scope in which the calling thread computes `share`.
class ShareScope {
 public:
  explicit ShareScope(StepShare& share);
  ~ShareScope();
  ShareScope(const ShareScope&) = delete;
  ShareScope& operator=(const ShareScope&) = delete;

 private:
  StepShare* outer_;
  metrics::UpdateRecords outer_updates_;
};

}  // namespace levin
