#include "levin/core/state.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <random>
#include <string_view>

#include "levin/core/options/random_engine.h"
#include "support/error_text.h"

namespace levin::state_test {
namespace {

using test::error_of;

TEST(State, KeepsTypedValuesAndTensors) {
  State state;
  EXPECT_TRUE(state.empty());
  state.set("best", 0.1);
  state.set("epochs", int64_t{3});
  state.set("name", std::string("5"));
  state.set("history", std::vector<double>{1, 2.5});
  state.tensors["exp_avg"] = at::ones({2});
  EXPECT_FALSE(state.empty());
  EXPECT_TRUE(state.has("best"));
  EXPECT_FALSE(state.has("worst"));
  EXPECT_EQ(state.get<double>("best"), 0.1);
  EXPECT_EQ(state.get<int64_t>("epochs"), 3);
  EXPECT_EQ(state.get<std::string>("name"), "5");
  EXPECT_EQ(state.get<std::vector<double>>("history"), (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(state.tensor("exp_avg").is_same(state.tensors["exp_avg"]));
}

TEST(State, KeepsTextOfEveryType) {
  const char* pointer = "1.5";
  State state;
  state.set("literal", "hello");
  state.set("pointer", pointer);
  state.set("view", std::string_view("true"));
  EXPECT_EQ(state.get<std::string>("literal"), "hello");
  EXPECT_EQ(state.get<std::string>("pointer"), "1.5");
  EXPECT_EQ(state.get<std::string>("view"), "true");
}

TEST(State, KeepsAGeneratorWhereItIs) {
  std::mt19937 generator(3);
  std::mt19937_64 other(3);
  generator.discard(700);
  State state;
  state.set("generator", generator);
  state.set("other", other);
  auto restored = state.get<std::mt19937>("generator");
  for (int k = 0; k < 1000; ++k) EXPECT_EQ(restored(), generator());
  EXPECT_EQ(state.get<std::mt19937_64>("other"), other);
  EXPECT_THROW((void)state.get<std::minstd_rand>("generator"), CheckpointError);
}

TEST(State, NamesWhatIsMissingOrOfADifferentType) {
  State state;
  state.set("name", std::string("x"));
  EXPECT_EQ(error_of<CheckpointError>([&] { (void)State().get<double>("best"); }),
            "saved state has no \"best\". It is empty.");
  state.set("bets", 1.5);
  EXPECT_EQ(error_of<CheckpointError>([&] { (void)state.get<double>("best"); }),
            "saved state has no \"best\". Did you mean \"bets\"? Known: bets, name.");
  EXPECT_EQ(error_of<CheckpointError>([&] { (void)state.get<std::string>("bets"); }),
            "saved state: bets: expected a string, got 1.5.");
  EXPECT_EQ(error_of<CheckpointError>([&] { (void)state.get<int64_t>("name"); }),
            "saved state: name: expected a whole number, got \"x\".");
  EXPECT_EQ(error_of<CheckpointError>([&] { (void)state.tensor("exp_avg"); }),
            "saved state has no tensor \"exp_avg\".");
}

TEST(State, GivesBackThePartThatWasPut) {
  State part;
  part.set("step", int64_t{7});
  part.tensors["exp_avg"] = at::ones({1});
  State other;
  other.tensors["exp_avg"] = at::ones({2});
  State whole;
  whole.put("optimizer", part);
  whole.put("optimizer_2", other);
  EXPECT_TRUE(whole.has("optimizer"));
  EXPECT_EQ(whole.tensors.count("optimizer.exp_avg"), 1u);
  const State back = whole.part("optimizer");
  EXPECT_EQ(back.get<int64_t>("step"), 7);
  ASSERT_EQ(back.tensors.size(), 1u);
  EXPECT_EQ(back.tensor("exp_avg").numel(), 1);
  EXPECT_EQ(whole.part("optimizer_2").tensor("exp_avg").numel(), 2);
  EXPECT_TRUE(whole.part("scheduler").empty());
}

TEST(State, PartsNest) {
  State inner;
  inner.set("x", true);
  inner.tensors["t"] = at::ones({3});
  State middle;
  middle.put("inner", inner);
  State outer;
  outer.put("middle", middle);
  EXPECT_TRUE(outer.part("middle").part("inner").get<bool>("x"));
  EXPECT_EQ(outer.part("middle").part("inner").tensor("t").numel(), 3);
}

TEST(State, PuttingAPartAgainReplacesItsTensors) {
  State part;
  part.tensors["old"] = at::ones({1});
  State whole;
  whole.put("a", part);
  part.tensors = {{"new", at::ones({1})}};
  whole.put("a", part);
  EXPECT_EQ(whole.part("a").tensors.count("old"), 0u);
  EXPECT_EQ(whole.part("a").tensors.count("new"), 1u);
}

}  // namespace
}  // namespace levin::state_test
