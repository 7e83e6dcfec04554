// Who is there, before ranks connect to each other: two processes with the same rank would otherwise wait for the one
// that is missing until the timeout.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "levin/strategies/process/rank_error.h"
#include "levin/strategies/world.h"

namespace c10d {
class Store;
}

namespace levin {

/// A rank is claimed twice in a meeting that all ranks have come to: it may be one that is just ending, which a process
/// that takes the place of another has found.
class MeetingIsOver : public RankError {
 public:
  using RankError::RankError;
};

/// Claims world.rank in `store`, whose keys belong to this meeting, and waits until every rank has been claimed. Throws
/// RankError at once, here and on the ranks that wait, if a rank is claimed twice, naming both processes; and
/// after `timeout`, naming the ranks that have not come.
void call_roll(c10d::Store& store, const World& world, std::chrono::milliseconds timeout);

}  // namespace levin
