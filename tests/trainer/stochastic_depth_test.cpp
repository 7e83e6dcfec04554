#include "levin/trainer/stochastic_depth.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "support/error_text.h"

namespace levin::stochastic_depth_test {
namespace {

TEST(StochasticDepth, DropsWholeRowsAndKeepsTheMean) {
  torch::manual_seed(1);
  const double p = 0.3;
  StochasticDepth drop(p);
  const at::Tensor branch = torch::rand({2000, 3, 2}) + 1;
  const at::Tensor kept = drop->forward(branch) / branch;  // 0, or 1 / (1 - p)
  const at::Tensor is_kept = kept.flatten(1).amax(1) > 0;
  EXPECT_TRUE(is_kept.equal(kept.flatten(1).amin(1) > 0));
  EXPECT_TRUE(torch::allclose(kept.index({is_kept}), torch::full({1}, 1 / (1 - p)), 1e-5));
  EXPECT_NEAR(is_kept.to(at::kDouble).mean().item<double>(), 1 - p, 0.04);
  EXPECT_NEAR(kept.mean().item<double>(), 1, 0.05);
}

TEST(StochasticDepth, DropsTheWholeBatchTogether) {
  torch::manual_seed(2);
  const at::Tensor branch = torch::ones({8, 5});
  int dropped = 0;
  for (int i = 0; i < 1000; ++i) {
    const at::Tensor out = stochastic_depth(branch, 0.25, DropMode::batch);
    EXPECT_EQ(out.min().item<float>(), out.max().item<float>());
    dropped += out[0][0].item<float>() == 0 ? 1 : 0;
  }
  EXPECT_NEAR(dropped, 250, 50);
}

TEST(StochasticDepth, LeavesEvaluationsAndProbabilityZeroAlone) {
  const at::Tensor branch = torch::rand({4, 2});
  StochasticDepth drop(0.9, DropMode::row);
  drop->eval();
  EXPECT_TRUE(drop->forward(branch).equal(branch));
  EXPECT_TRUE(stochastic_depth(branch, 0, DropMode::row).equal(branch));
  EXPECT_EQ(stochastic_depth(branch, 1, DropMode::row).abs().max().item<float>(), 0);
}

TEST(StochasticDepth, PassesGradientsToWhatWasKeptAlone) {
  torch::manual_seed(3);
  const at::Tensor branch = torch::rand({16, 2}).requires_grad_(true);
  const at::Tensor out = stochastic_depth(branch, 0.5, DropMode::row);
  out.sum().backward();
  EXPECT_TRUE(branch.grad().equal((out.detach() != 0).to(at::kFloat) * 2));
}

TEST(StochasticDepth, GrowsAlongALineToTheLastBlock) {
  EXPECT_DOUBLE_EQ(depth_probability(0, 4, 0.2), 0.05);
  EXPECT_DOUBLE_EQ(depth_probability(3, 4, 0.2), 0.2);
}

TEST(StochasticDepth, ReportsWhatAProbabilityIs) {
  EXPECT_EQ(test::error_of([] { StochasticDepth(1.5); }),
            "StochasticDepth.p: must be in [0, 1], got 1.5. It is the probability of a drop.");
  std::ostringstream text;
  text << *StochasticDepth(0.25, DropMode::batch);
  EXPECT_EQ(text.str(), "StochasticDepth(p=0.25, mode=batch)");
}

}  // namespace
}  // namespace levin::stochastic_depth_test
