// Checks that every rank is present before ranks connect to each other: two processes with the same rank would
// otherwise wait for the missing rank until the timeout.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "levin/strategies/mesh.h"
#include "levin/strategies/process/rank_error.h"

namespace c10d {
class Store;
}

namespace levin {

/// A rank was claimed twice in a rendezvous that all ranks have joined: it may be one that is just ending, and a
/// process that replaces another has joined it.
class RendezvousClosed : public RankError {
 public:
  using RankError::RankError;
};

/// Claims world.rank in `store`, whose keys belong to this rendezvous, and waits until every rank has been claimed.
/// Throws RankError at once, here and on the waiting ranks, if a rank is claimed twice, naming both processes; and
/// after `timeout`, naming the missing ranks.
void call_roll(c10d::Store& store, const World& world, std::chrono::milliseconds timeout);

/// Waits until the program that listens at an address responds as a store, for `timeout` at most. LibTorch's own client
/// would wait there without a message, regardless of which program listens. Throws Error naming the address and what
/// was found instead: at once if a program sends anything else, after half a minute if one sends nothing at all.
void await_store(const std::string& host, int64_t port, std::chrono::milliseconds timeout);

}  // namespace levin
