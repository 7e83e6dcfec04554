// Where `log` goes: to the notes of a step being captured, to the share of a batch that the thread computes, or to the
// running loop's metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "levin/trainer/metrics.h"
#include "levin/trainer/step/step_share.h"

namespace levin {

struct Run;

/// What Trainer::log does.
void log_value(Run& run, std::string_view name, const at::Tensor& value, const LogOptions& options);
void log_value(Run& run, std::string_view name, double value, const LogOptions& options);
void log_value(Run& run, std::string_view name, metrics::Metric& metric, const LogOptions& options);

/// Logs the values of the shares as those of a whole batch: the k-th values of a name are reduced by their reduce_fx;
/// mean is weighted by samples.
void log_shares(Run& run, const std::vector<StepShare>& shares);

}  // namespace levin
