// --init-method, --rank and --world-size: their effect on this process, and their errors.
#include "levin/strategies/launch/init_method.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "levin/core/options/error.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "support/error_text.h"

namespace levin::init_method_test {
namespace {

using test::expect_parts;

using Arguments = std::vector<std::string>;

class InitMethod : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", kInitMethodVariable,
                             "TORCHELASTIC_RUN_ID"}) {
      ::unsetenv(name);
    }
  }
  static std::string error_of(const Arguments& arguments) {
    try {
      (void)take_init_method(arguments);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(InitMethod, MakesTheProcessThatRank) {
  const Arguments others = take_init_method(
      {"fit", "--init-method", "tcp://10.0.0.1:23456", "--config=a.yaml", "--rank", "1", "--world-size", "4", "--x"});
  EXPECT_EQ(others, (Arguments{"fit", "--config=a.yaml", "--x"}));
  const auto world = find_world(process_variables());
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->size, 4);
  EXPECT_EQ(world->num_nodes, 4);
  EXPECT_EQ(world->local_size, 1);
  EXPECT_EQ(world->master_address, "10.0.0.1");
  EXPECT_EQ(world->master_port, 23456);
  EXPECT_EQ(world->source, "--init-method");
}

TEST_F(InitMethod, MayBeWrittenAsPythonProgramsDo) {
  EXPECT_EQ(take_init_method({"--init_method=tcp://[fe80::1]:99", "--world_size=1", "--rank=0"}), Arguments{});
  EXPECT_EQ(find_world(process_variables())->master_address, "fe80::1");
  EXPECT_EQ(take_init_method({"--rank=0", "--world_size=1", "--init_method=tcp://[fe80::1]:99"}),
            Arguments{});  // again
}

TEST_F(InitMethod, WithoutItNothingIsDone) {
  EXPECT_EQ(take_init_method({"fit", "--ranking=1"}), (Arguments{"fit", "--ranking=1"}));
  EXPECT_FALSE(find_world(process_variables()));
}

TEST_F(InitMethod, ThreeBelongTogether) {
  expect_parts(
      error_of({"--rank", "0", "--world-size", "2"}),
      {"--init-method: missing, but needed with --rank", "--init-method tcp://HOST:PORT --rank R --world-size N"});
  expect_parts(error_of({"--init-method", "tcp://a:1", "--rank", "0"}), {"--world-size: missing"});
  expect_parts(error_of({"--rank"}), {"--rank: no value follows"});
  expect_parts(error_of({"--rank=0", "--rank=1"}), {"--rank: specified twice, as 0 and as 1"});
}

TEST_F(InitMethod, ValuesThatCannotBeAreNamed) {
  auto with = [](const std::string& url, const std::string& rank, const std::string& size) {
    return error_of({"--init-method", url, "--rank", rank, "--world-size", size});
  };
  expect_parts(with("tcp://a:1", "2", "2"), {"--rank: \"2\" is not a number from 0 to 1"});
  expect_parts(with("tcp://a:1", "0", "0"), {"--world-size: \"0\" is not a number from 1"});
  expect_parts(with("tcp://a:1", "x", "2"), {"--rank: \"x\""});
  expect_parts(with("tcp://a:99999", "0", "2"), {"--init-method: \"99999\" is not a number from 1 to 65535"});
  for (const char* url : {"file:///tmp/x", "10.0.0.1:23", "tcp://10.0.0.1", "tcp://:5", ""}) {
    expect_parts(with(url, "0", "2"),
                 {"--init-method: \"" + std::string(url) + "\"", "Write --init-method tcp://HOST:PORT"});
  }
  EXPECT_FALSE(find_world(process_variables()));
}

TEST_F(InitMethod, AgainstALauncherShowsBoth) {
  ::setenv("TORCHELASTIC_RUN_ID", "x", 1);
  ::setenv("RANK", "0", 1);
  ::setenv("LOCAL_RANK", "0", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("MASTER_PORT", "77", 1);
  expect_parts(error_of({"--init-method", "tcp://10.0.0.1:5", "--rank", "1", "--world-size", "4"}),
               {"make this process rank 1 of 4 at 10.0.0.1:5", "torchrun has made it rank 0 of 2 at 127.0.0.1:77"});
}

}  // namespace
}  // namespace levin::init_method_test
