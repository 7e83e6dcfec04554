// How a data set leaves out a sample that it cannot read.
//
//   levin::Batch get(int64_t index) const override {
//     try {
//       return {read(index)};
//     } catch (const levin::DataError& error) {
//       return levin::skipped_sample(error.what());
//     }
//   }
#pragma once

#include <string>

#include "levin/data/batch.h"

namespace levin {

/// Returns a sample without tensors, which its batch leaves out. A prediction lists the sample with this reason
/// (PredictionWriter). Called in Dataset::get(), on the thread that called it.
[[nodiscard]] Batch skipped_sample(std::string reason);

namespace detail {

/// Returns the reason given by the last call on this thread, and forgets it; "" if there was none since.
[[nodiscard]] std::string take_skip_reason();

}  // namespace detail

}  // namespace levin
