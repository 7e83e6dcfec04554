// The interface of callbacks that learn which samples a prediction left out, such as PredictionWriter.
#pragma once

#include <cstdint>

#include "levin/data/batch_samples.h"

namespace levin {

/// The base of callbacks that are told which samples their data set could not read (skipped_sample). Each rank's
/// callbacks learn of the samples of its own batches.
class TakesSkippedSamples {
 public:
  virtual ~TakesSkippedSamples() = default;
  /// Called in a prediction, before the hooks of a batch that lacks samples, and instead of them if it lacks all.
  /// `samples`: of the batch; some are skipped.
  virtual void on_samples_skipped(const BatchSamples& samples, int64_t dataloader_idx) = 0;

 protected:
  TakesSkippedSamples() = default;
  TakesSkippedSamples(const TakesSkippedSamples&) = default;
  TakesSkippedSamples& operator=(const TakesSkippedSamples&) = default;
};

}  // namespace levin
