#include <gtest/gtest.h>

#include "levin/strategies/launch/cluster_environment.h"

namespace levin::place_test {
namespace {

World rank_of(int64_t rank, int64_t size) {
  World world;
  world.rank = rank;
  world.size = size;
  world.place_is_known = false;
  return world;
}

TEST(Place, RanksOfOneMachineAreNumberedByTheirRanks) {
  const std::vector<std::string> machines = {"b", "a", "b", "c", "a", "b"};
  const std::vector<int64_t> local_ranks = {0, 0, 1, 0, 1, 2};
  const std::vector<int64_t> local_sizes = {3, 2, 3, 1, 2, 3};
  const std::vector<int64_t> nodes = {0, 1, 0, 2, 1, 0};
  for (int64_t rank = 0; rank < 6; ++rank) {
    const auto at = static_cast<size_t>(rank);
    const World found = place_among(rank_of(rank, 6), machines);
    EXPECT_EQ(found.local_rank, local_ranks[at]);
    EXPECT_EQ(found.local_size, local_sizes[at]);
    EXPECT_EQ(found.node_rank, nodes[at]);
    EXPECT_EQ(found.num_nodes, 3);
    EXPECT_TRUE(found.place_is_known);
    EXPECT_EQ(found.rank, rank);
  }
}

TEST(Place, AMachineIsKnownByItsNameAndItsStart) {
  EXPECT_EQ(this_machine(), this_machine());
  EXPECT_GT(this_machine().size(), 10U);
}

}  // namespace
}  // namespace levin::place_test
