// Ranks that replay recorded steps together (GradientSync::replays_together) agree on it before the last batch of each
// window, whose backward reduces their gradients. Internal.
#pragma once

namespace levin {

struct Run;

/// Of one rank, or true where it is true of all.
struct ReplayVote {
  bool replays = true;      // the batch and the window so far fit what is recorded
  bool is_recorded = true;  // there is a recording of this part of a window
  bool goes_on = true;      // steps may still be recorded
};

/// What is true of all ranks. This rank's notes go along, and those of all are heard, as with gradients. Every rank;
/// blocks until all have called it.
[[nodiscard]] ReplayVote agree_on_replay(Run& run, const ReplayVote& own);

}  // namespace levin
