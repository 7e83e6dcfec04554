#include "simulator.h"

#include <cmath>
#include <numbers>

namespace pendulum {

namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kDamping = 0.5;
constexpr double kDriveFrequency = 2.0 / 3.0;  // rad/s

// Returns a number from 0 to 1 that depends on `number`; the numbers of a sequence are spread evenly.
double spread(int64_t number, double stride) {
  const double product = static_cast<double>(number) * stride;
  return product - std::floor(product);
}

}  // namespace

Pendulum::Pendulum(int64_t number)
    : angle_(kPi * (2 * spread(number, 0.618033988749895) - 1)),
      velocity_(4 * spread(number, 0.414213562373095) - 2),
      amplitude_(0.9 + 0.6 * spread(number, 0.732050807568877)),
      phase_(2 * kPi * spread(number, 0.236067977499790)) {}

double Pendulum::torque() const {
  return amplitude_ * std::cos(kDriveFrequency * (static_cast<double>(steps_) * kTimeStep) + phase_);
}

double Pendulum::energy() const {
  return 0.5 * (velocity_ * velocity_) + (1 - std::cos(angle_));
}

double Pendulum::acceleration(double angle, double velocity, double torque) const {
  return (torque - std::sin(angle)) - kDamping * velocity;
}

void Pendulum::step() {
  const double half = 0.5 * kTimeStep;
  const double u = torque();
  const double v1 = velocity_;
  const double a1 = acceleration(angle_, v1, u);
  const double v2 = velocity_ + half * a1;
  const double a2 = acceleration(angle_ + half * v1, v2, u);
  const double v3 = velocity_ + half * a2;
  const double a3 = acceleration(angle_ + half * v2, v3, u);
  const double v4 = velocity_ + kTimeStep * a3;
  const double a4 = acceleration(angle_ + kTimeStep * v3, v4, u);
  angle_ = angle_ + kTimeStep / 6 * ((v1 + 2 * v2) + (2 * v3 + v4));
  velocity_ = velocity_ + kTimeStep / 6 * ((a1 + 2 * a2) + (2 * a3 + a4));
  angle_ = angle_ - 2 * kPi * std::round(angle_ / (2 * kPi));
  ++steps_;
}

Samples simulate(std::vector<Pendulum>& pendulums, int64_t steps) {
  Samples samples;
  for (int64_t k = 0; k < steps; ++k) {
    for (Pendulum& pendulum : pendulums) {
      const double angle = pendulum.angle();
      for (const double value : {angle, pendulum.velocity(), pendulum.torque()}) {
        samples.states.push_back(static_cast<float>(value));
      }
      pendulum.step();
      const double turn = std::round((pendulum.angle() - angle) / (2 * kPi));  // 0, or 1 or -1 past the top
      samples.next.push_back(static_cast<float>(pendulum.angle() - 2 * kPi * turn));
      samples.next.push_back(static_cast<float>(pendulum.velocity()));
    }
  }
  return samples;
}

}  // namespace pendulum
