// When the metrics in Trainer::callback_metrics were measured: for callbacks that decide by a metric, so that no value
// is judged twice or taken for the value of later weights.
//
//   if (levin::measured_at(trainer, "val_loss") == trainer.seen_batches()) …  // measured for the present weights
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace levin {

class Trainer;

/// Returns how many training batches were done (Trainer::seen_batches) when the metric got its value in
/// callback_metrics(); unset if it has none. A value that a training step logs belongs to the state after its batch, an
/// epoch's value to the epoch's end.
[[nodiscard]] std::optional<int64_t> measured_at(const Trainer& trainer, const std::string& metric);

/// Returns whether a metric without a value may still get one: no epoch or, if there is validation, no validation of
/// this fit has ended yet.
[[nodiscard]] bool may_still_be_measured(const Trainer& trainer);

/// Returns whether a validation follows the batch; false for validations after a period of time, which are not known in
/// advance. For on_train_batch_end.
[[nodiscard]] bool validation_follows(const Trainer& trainer);

/// Returns `who: metric "x" was never logged by epoch 0. Logged: a, b. Did you mean "b"?`, or, for a metric that
/// validation logs for single batches only, that the validation as a whole has no value.
[[nodiscard]] std::string missing_metric_text(const Trainer& trainer, const std::string& who,
                                              const std::string& metric);

/// Makes the trainer expect a metric that `who` needs: after the first training batch it warns of metrics that neither
/// that batch nor the sanity check has logged, except metrics that only a later validation may log. For on_train_start.
void expect_metric(const Trainer& trainer, const std::string& who, const std::string& metric);

}  // namespace levin
