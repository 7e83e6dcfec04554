// A module's state after a run, on the CPU, for comparison with other runs.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "levin/trainer/trainer.h"

namespace levin::test {

struct Trained {
  std::vector<at::Tensor> tensors = {};  // parameters, then buffers, on the CPU
  Metrics metrics = {};
  int64_t steps = 0;
  int64_t skipped = 0;
};

/// Returns the state after trainer.fit(module, …).
inline Trained trained_by(Trainer& trainer, const torch::nn::Module& module) {
  Trained trained{
      .metrics = trainer.callback_metrics(), .steps = trainer.global_step(), .skipped = trainer.skipped_steps()};
  for (const auto& parameter : module.parameters()) trained.tensors.push_back(parameter.detach().cpu());
  for (const auto& buffer : module.buffers()) trained.tensors.push_back(buffer.cpu());
  return trained;
}

inline void expect_same_bits(const Trained& one, const Trained& other) {
  EXPECT_EQ(one.steps, other.steps);
  EXPECT_EQ(one.skipped, other.skipped);
  EXPECT_EQ(one.metrics, other.metrics);
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  for (size_t i = 0; i < one.tensors.size(); ++i) {
    EXPECT_TRUE(torch::equal(one.tensors[i], other.tensors[i]))
        << "tensor " << i << " differs by " << (one.tensors[i] - other.tensors[i]).abs().max().item<double>();
  }
}

}  // namespace levin::test
