#include "levin/trainer/step/replay_agreement.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run.h"

namespace levin {

ReplayVote agree_on_replay(Run& run, const ReplayVote& own) {
  run.entry.time_split.enter(StepPart::communication);
  const std::array<bool, 3> against = {!own.replays, !own.is_recorded, !own.goes_on};
  const auto notes = take_notes(run.entry, run.fit, /*sync=*/true).numbers();
  at::Tensor said = at::empty({static_cast<int64_t>(notes.size() + against.size())}, at::kDouble);
  auto* numbers = said.mutable_data_ptr<double>();
  std::copy(against.begin(), against.end(), std::copy(notes.begin(), notes.end(), numbers));

  const at::Tensor heard = run.strategy->reduce_in_step(said, ReduceOp::max);
  const auto* most = heard.const_data_ptr<double>();
  std::array<double, kRankNotes> of_all = {};
  std::copy_n(most, of_all.size(), of_all.begin());
  hear(run.entry, run.fit, RankNotes::from(of_all));
  most += of_all.size();
  run.entry.time_split.enter(StepPart::other);
  return {.replays = most[0] == 0, .is_recorded = most[1] == 0, .goes_on = most[2] == 0};
}

}  // namespace levin
