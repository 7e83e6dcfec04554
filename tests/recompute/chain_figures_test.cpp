// How the times of several passes are combined, on a machine that is slow for some of them.
#include "levin/recompute/chain_figures.h"

#include <gtest/gtest.h>

namespace levin::chain_figures_test {
namespace {

// One station between blocks, on a machine that takes `slow` times as long.
Stations pass(double forward, double backward, double slow) {
  Station station;
  station.has_backward = true;
  station.forward.seconds = forward * slow;
  station.backward.seconds = backward * slow;
  return {station};
}

TEST(ChainFigures, AMachineThatIsSlowForSomePassesDoesNotMakeRecomputationSlower) {
  // Backward takes 20, and 30 where forward is done again. The machine is slow for the second pass with segments, and
  // for all of the third pair.
  const std::vector<Stations> plain = {pass(10, 20, 1), pass(10, 20, 1), pass(10, 20, 3)};
  const std::vector<Stations> again = {pass(10, 30, 1), pass(10, 30, 3), pass(10, 30, 3)};
  const Passes passes = typical_passes(plain, again);
  EXPECT_DOUBLE_EQ(passes.plain[0].forward.seconds, 10);
  EXPECT_DOUBLE_EQ(passes.plain[0].backward.seconds, 20);
  EXPECT_DOUBLE_EQ(passes.again[0].forward.seconds, 10);
  EXPECT_DOUBLE_EQ(passes.again[0].backward.seconds, 30);
}

TEST(ChainFigures, AStationThatTakesNoTimeKeepsItsOwn) {
  const Passes passes = typical_passes({pass(0, 0, 1)}, {pass(2, 3, 1)});
  EXPECT_DOUBLE_EQ(passes.again[0].forward.seconds, 2);
  EXPECT_DOUBLE_EQ(passes.again[0].backward.seconds, 3);
}

}  // namespace
}  // namespace levin::chain_figures_test
