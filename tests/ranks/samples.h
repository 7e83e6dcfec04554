// What the programs of this folder train on.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "levin/data/batch.h"
#include "levin/data/loading/sampler.h"
#include "ranks/run_arguments.h"

namespace levin::test {

inline Batch make_data(const RunArguments& arguments) {
  torch::manual_seed(0);
  const int64_t samples = arguments.number("samples", 8);
  auto x = torch::rand({samples, 8});
  if (arguments.has("nan_sample")) x[arguments.number("nan_sample", 0)].fill_(std::numeric_limits<float>::quiet_NaN());
  if (arguments.has("nan_gradient_sample")) x[arguments.number("nan_gradient_sample", 0)].zero_();
  return {x, torch::arange(samples).remainder(3)};
}

// The order that two ranks see, in one process.
inline std::shared_ptr<Sampler> interleaved(int64_t samples, int64_t batch, int64_t ranks) {
  std::vector<int64_t> order;
  for (int64_t start = 0; start < samples; start += batch * ranks) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (int64_t k = start + rank; k < std::min(samples, start + batch * ranks); k += ranks) order.push_back(k);
    }
  }
  return std::make_shared<SubsetSampler>(order);
}

}  // namespace levin::test
