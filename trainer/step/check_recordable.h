// Which runs' steps can be recorded.
#pragma once

namespace levin {

struct Run;

/// Throws ConfigError with one sentence on why the run's steps cannot be recorded, whatever they compute. Called once
/// the optimizers are set up; any rank.
void check_recordable(const Run& run);

/// Whether the host performs the updates itself after each replay, as it does without recordings: the optimizer, a
/// callback before the update or the module's optimizer_step has something to do on the host.
[[nodiscard]] bool leaves_updates(const Run& run);

}  // namespace levin
