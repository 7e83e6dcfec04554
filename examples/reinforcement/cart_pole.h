// The cart-pole task: a pole stands on a cart, and pushes of the cart to the left or right keep it upright. The
// equations come from Barto, Sutton and Anderson 1983, without friction and corrected as in Florian 2007; constants,
// limits and rewards are Gymnasium's for CartPole-v1.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace reinforcement {

struct CartPole {
  using Action = int64_t;                     // 0: push to the left, 1: push to the right
  static constexpr int64_t kActions = 2;      // how many there are
  static constexpr int64_t kMaxSteps = 500;   // of an episode
  static constexpr size_t kObservations = 4;  // numbers of an observation
  static constexpr size_t kState = 4;         // numbers of the state

  // Position in m, velocity in m/s, angle from upright in rad, angular velocity in rad/s.
  std::array<double, kState> state = {};

  // Begins an episode; `uniform` are independent numbers from [0, 1).
  void reset(const std::array<double, kState>& uniform) {
    for (size_t i = 0; i < kState; ++i) state[i] = 0.1 * uniform[i] - 0.05;
  }

  [[nodiscard]] std::array<float, kObservations> observation() const {
    return {static_cast<float>(state[0]), static_cast<float>(state[1]), static_cast<float>(state[2]),
            static_cast<float>(state[3])};
  }

  // Advances by 20 ms with Euler's method and returns the reward.
  double step(Action action) {
    constexpr double kGravity = 9.8, kCart = 1.0, kPole = 0.1, kHalfLength = 0.5, kForce = 10.0, kSeconds = 0.02;
    constexpr double kMass = kCart + kPole;
    auto& [x, velocity, angle, rotation] = state;
    const double sine = std::sin(angle), cosine = std::cos(angle);
    const double push = ((action == 1 ? kForce : -kForce) + kPole * kHalfLength * rotation * rotation * sine) / kMass;
    const double rotation_rate =
        (kGravity * sine - cosine * push) / (kHalfLength * (4.0 / 3.0 - kPole * cosine * cosine / kMass));
    const double acceleration = push - kPole * kHalfLength * rotation_rate * cosine / kMass;
    x += kSeconds * velocity;
    velocity += kSeconds * acceleration;
    angle += kSeconds * rotation;
    rotation += kSeconds * rotation_rate;
    return 1.0;
  }

  // Returns true if the cart has left the track or the pole leans by more than 12 degrees.
  [[nodiscard]] bool is_over() const {
    return std::abs(state[0]) > 2.4 || std::abs(state[2]) > 12 * std::numbers::pi / 180;
  }
};

}  // namespace reinforcement
