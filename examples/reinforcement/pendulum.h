// The pendulum task: a torque too weak to lift a pendulum directly swings it up and holds it there. Constants, limits
// and costs are Gymnasium's for Pendulum-v1.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace reinforcement {

struct Pendulum {
  using Action = float;                   // the torque in N m; only its part within [-2, 2] acts
  static constexpr int64_t kActions = 1;  // numbers of an action
  static constexpr int64_t kMaxSteps = 200;
  static constexpr size_t kObservations = 3;
  static constexpr size_t kState = 2;

  std::array<double, kState> state = {};  // angle from upright in rad, not reduced to one turn; rad/s

  void reset(const std::array<double, kState>& uniform) {
    state = {std::numbers::pi * (2 * uniform[0] - 1), 2 * uniform[1] - 1};
  }

  [[nodiscard]] std::array<float, kObservations> observation() const {
    return {static_cast<float>(std::cos(state[0])), static_cast<float>(std::sin(state[0])),
            static_cast<float>(state[1])};
  }

  // Advances by 50 ms and returns the reward, which is the negative cost of the state before.
  double step(Action action) {
    constexpr double kGravity = 10.0, kMass = 1.0, kLength = 1.0, kSeconds = 0.05, kMaxSpeed = 8.0;
    auto& [angle, speed] = state;
    const double torque = std::clamp(static_cast<double>(action), -2.0, 2.0);
    const double from_upright = std::remainder(angle, 2 * std::numbers::pi);
    const double cost = from_upright * from_upright + 0.1 * speed * speed + 0.001 * torque * torque;
    const double acceleration = 1.5 * kGravity / kLength * std::sin(angle) + 3.0 / (kMass * kLength * kLength) * torque;
    speed = std::clamp(speed + kSeconds * acceleration, -kMaxSpeed, kMaxSpeed);
    angle += kSeconds * speed;
    return -cost;
  }

  [[nodiscard]] bool is_over() const { return false; }  // an episode ends by its number of steps alone
};

}  // namespace reinforcement
