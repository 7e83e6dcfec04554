// A damped pendulum that a periodic torque drives into chaos. pendulum.f90 has the same simulator, with the same
// operations in the same order, so that both compute identical numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace pendulum {

inline constexpr double kTimeStep = 0.1;  // s

/// A pendulum of unit length and mass, with gravity 1: angle'' = -sin(angle) - kDamping angle' + torque.
class Pendulum {
 public:
  /// The number chooses the initial state, and the drive's amplitude and phase.
  explicit Pendulum(int64_t number);

  /// Advances by kTimeStep, during which the torque is constant, by the classical Runge-Kutta method.
  void step();

  [[nodiscard]] double angle() const { return angle_; }        // rad, from -pi to pi
  [[nodiscard]] double velocity() const { return velocity_; }  // rad/s
  /// Returns the torque of the next step.
  [[nodiscard]] double torque() const;
  [[nodiscard]] double energy() const;

 private:
  [[nodiscard]] double acceleration(double angle, double velocity, double torque) const;

  double angle_;
  double velocity_;
  double amplitude_;
  double phase_;
  int64_t steps_ = 0;
};

/// Samples of a surrogate, one after another in memory.
struct Samples {
  std::vector<float> states = {};  // (samples, 3): angle, velocity, torque
  std::vector<float> next = {};    // (samples, 2): angle, which may leave -pi to pi, and velocity after kTimeStep
};

/// Advances all pendulums by `steps`, and returns what they did: a sample for each step and pendulum.
[[nodiscard]] Samples simulate(std::vector<Pendulum>& pendulums, int64_t steps);

}  // namespace pendulum
