#include "levin/trainer/step/recording_trial.h"

#include <cstddef>
#include <cstdio>

namespace levin {

namespace {

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g us", seconds * 1e6);
  return text;
}

}  // namespace

// The fastest window of each kind: other programs only make windows slower.
void RecordingTrial::add(double seconds) {
  double& fastest = fastest_[static_cast<size_t>(replays_next())];
  if (fastest < 0 || seconds < fastest) fastest = seconds;
  ++windows_;
}

std::string RecordingTrial::text() const {
  return microseconds(fastest_[1]) + " instead of " + microseconds(fastest_[0]);
}

}  // namespace levin
