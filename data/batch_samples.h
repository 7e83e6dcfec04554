// What a loader knows about the samples of a batch, for predictions: which they are, and which were left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

/// A sample that its data set has left out (skipped_sample in data/loading/skipped_sample.h).
struct SkippedSample {
  int64_t index = 0;  // in the data set
  std::string id = "";
  std::string reason = "";
};

/// The samples of a batch.
struct BatchSamples {
  std::vector<std::string> ids = {};  // what identifies each sample outside the run; none: unknown
  std::vector<int64_t> indices = {};  // of each sample in its data set; none: unknown
  int64_t batch = -1;                 // number among the batches of all ranks, in the order of one process; -1: unknown
  int64_t loader = 0;                 // number of the loader, of several that are read one after another as one
  std::vector<SkippedSample> skipped = {};  // samples that are not in the batch
};

}  // namespace levin
