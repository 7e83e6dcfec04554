// The address that a rank tells the others. Interfaces: the loopback, which every machine has.
#include "levin/strategies/launch/own_address.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "levin/core/options/error.h"

namespace levin::own_address_test {
namespace {

World two_nodes(const std::string& master) {
  World world;
  world.size = world.num_nodes = 2;
  world.master_address = master;
  return world;
}

TEST(OwnAddress, IsLoopbackOnOneMachineForAnyNameOfRankZero) {
  World world = two_nodes("192.0.2.1");
  world.num_nodes = 1;
  EXPECT_EQ(own_address(world), "127.0.0.1");
}

TEST(OwnAddress, IsLoopbackWhereRankZeroIsMeantToBeThere) {
  EXPECT_EQ(own_address(two_nodes("127.0.0.1")), "127.0.0.1");
  EXPECT_EQ(own_address(two_nodes("127.0.0.5")).rfind("127.", 0), 0u);
}

TEST(OwnAddress, ComesFromTheNamedInterface) {
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  EXPECT_EQ(own_address(two_nodes("192.0.2.1")), "127.0.0.1");
  ::setenv("GLOO_SOCKET_IFNAME", "nosuch0", 1);
  try {
    (void)own_address(two_nodes("192.0.2.1"));
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("GLOO_SOCKET_IFNAME is \"nosuch0\""), std::string::npos) << error.what();
  }
  ::unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(OwnAddress, OfAnUnknownHostIsNotLoopback) {
  // Without a second interface the address is unknown.
  const std::string address = own_address(two_nodes("no-such-host.invalid"));
  EXPECT_EQ(address.rfind("127.", 0), std::string::npos) << address;
}

}  // namespace
}  // namespace levin::own_address_test
