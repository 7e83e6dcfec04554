#include <gtest/gtest.h>
#include <levin/levin.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "reinforcement/cart_pole.h"
#include "reinforcement/environments.h"
#include "reinforcement/gae.h"
#include "reinforcement/pendulum.h"
#include "support/paths.h"

namespace levin::reinforcement_test {
namespace {

using reinforcement::CartPole;
using reinforcement::Environments;
using reinforcement::Pendulum;
using reinforcement::Transition;

nlohmann::json reference() {
  std::ifstream file(test::source_dir() + "/tests/examples/reference/reinforcement.json");
  return nlohmann::json::parse(file);
}

// Gymnasium computes some of these numbers in a different order.
template <class Numbers>
void expect_near(const Numbers& numbers, const nlohmann::json& expected, double tolerance) {
  ASSERT_EQ(numbers.size(), expected.size());
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_NEAR(numbers[i], expected[i].get<double>(), tolerance);
}

template <class Task>
void expect_trace(const nlohmann::json& trace) {
  Task task;
  task.state = trace["state"];
  for (const auto& step : trace["steps"]) {
    EXPECT_NEAR(task.step(static_cast<typename Task::Action>(step["action"].get<double>())),
                step["reward"].get<double>(), 1e-9);  // Gymnasium squares the torque in float32
    expect_near(task.state, step["state"], 1e-12);
    expect_near(task.observation(), step["observation"], 1e-6);
    EXPECT_EQ(task.is_over(), step["over"].get<bool>());
  }
}

TEST(Reinforcement, TheCartPoleMovesAndEndsAsGymnasiums) {
  const auto expected = reference();
  for (const auto& trace : expected["cart_pole"]) expect_trace<CartPole>(trace);
  EXPECT_EQ(CartPole::kMaxSteps, expected["max_steps"][0]);
}

TEST(Reinforcement, ThePendulumMovesAndCostsAsGymnasiums) {
  const auto expected = reference();
  for (const auto& trace : expected["pendulum"]) expect_trace<Pendulum>(trace);
  EXPECT_EQ(Pendulum::kMaxSteps, expected["max_steps"][1]);
}

TEST(Reinforcement, ATaskThatIsOverIsTerminatedAndBeginsAnew) {
  seed_everything(1);
  Environments<CartPole> environments(2);
  const torch::Tensor actions = torch::tensor({1, 1}, torch::kLong);
  Transition last;
  int64_t steps = 0;
  while (environments.episodes() == 0) {
    last = environments.step(actions);
    ++steps;
  }
  EXPECT_LT(steps, 20);
  EXPECT_TRUE(last.terminated.any().item<bool>());
  EXPECT_FALSE(last.truncated.any().item<bool>());
  EXPECT_EQ(environments.mean_return(), static_cast<double>(steps));
  const torch::Tensor is_over = last.terminated.unsqueeze(1);
  EXPECT_GT(last.observation.masked_select(is_over).abs().amax().item<double>(), 0.2);
  EXPECT_LE(environments.observations().masked_select(is_over).abs().amax().item<double>(), 0.05);
}

TEST(Reinforcement, ALimitOfStepsTruncatesAndGivesTheLastObservation) {
  seed_everything(1);
  Environments<Pendulum> environments(2);
  torch::Tensor total = torch::zeros({2}, torch::kDouble);
  for (int64_t step = 1; step <= Pendulum::kMaxSteps; ++step) {
    const torch::Tensor before = environments.observations();
    const Transition after = environments.step(torch::zeros({2}));
    total += after.reward;
    EXPECT_FALSE(after.terminated.any().item<bool>());
    EXPECT_EQ(after.truncated.all().item<bool>(), step == Pendulum::kMaxSteps);
    EXPECT_EQ(after.truncated.any().item<bool>(), step == Pendulum::kMaxSteps);
    EXPECT_EQ(torch::equal(after.observation, environments.observations()), step < Pendulum::kMaxSteps);
    EXPECT_TRUE(torch::allclose(after.observation, before, 0, /*atol=*/1.0));
  }
  EXPECT_EQ(environments.episodes(), 2);
  EXPECT_NEAR(environments.mean_return(), total.mean().item<double>(), 1e-3);
}

TEST(Reinforcement, EnvironmentsContinueFromTheirState) {
  seed_everything(1);
  Environments<CartPole> one(3);
  const auto step = [](Environments<CartPole>& each, int64_t number) {
    (void)each.step(torch::tensor({number % 2, (number + 1) % 2, number % 3 / 2}, torch::kLong));
  };
  for (int64_t i = 0; i < 50; ++i) step(one, i);
  ASSERT_GT(one.episodes(), 0);
  const State saved = one.state_dict();
  Environments<CartPole> other(3);
  other.load_state_dict(saved);
  seed_everything(2);
  for (int64_t i = 50; i < 120; ++i) step(one, i);
  seed_everything(2);
  for (int64_t i = 50; i < 120; ++i) step(other, i);
  EXPECT_TRUE(torch::equal(one.observations(), other.observations()));
  EXPECT_EQ(one.episodes(), other.episodes());
  EXPECT_EQ(one.mean_return(), other.mean_return());
}

// The sum of (gamma lambda)^k d_{t+k} up to the end of the episode, term by term.
TEST(Reinforcement, AdvantagesAreTheSumOverTheRestOfTheEpisode) {
  torch::manual_seed(1);
  constexpr int64_t kSteps = 12, kCount = 3;
  constexpr double kGamma = 0.9, kLambda = 0.7;
  const torch::Tensor rewards = torch::randn({kSteps, kCount}, torch::kDouble);
  const torch::Tensor values = torch::randn({kSteps + 1, kCount}, torch::kDouble);
  const torch::Tensor ends = torch::rand({kSteps, kCount}) < 0.3;
  ASSERT_TRUE(ends.any().item<bool>());
  const torch::Tensor advantages =
      reinforcement::advantages_of(rewards, values.narrow(0, 0, kSteps), ends, values[kSteps], kGamma, kLambda);
  for (int64_t n = 0; n < kCount; ++n) {
    for (int64_t t = 0; t < kSteps; ++t) {
      double sum = 0, factor = 1;
      for (int64_t k = t; k < kSteps; ++k, factor *= kGamma * kLambda) {
        const bool is_end = ends[k][n].item<bool>();
        const double future = is_end ? 0 : values[k + 1][n].item<double>();
        sum += factor * (rewards[k][n].item<double>() + kGamma * future - values[k][n].item<double>());
        if (is_end) break;
      }
      EXPECT_NEAR(advantages[t][n].item<double>(), sum, 1e-12);
    }
  }
}

}  // namespace
}  // namespace levin::reinforcement_test
