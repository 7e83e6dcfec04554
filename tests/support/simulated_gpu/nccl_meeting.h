// Memory that the ranks of a simulated NCCL group share, and in which they meet for each collective.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace simulated {

/// What a rank calls; all ranks of a group must call the same.
struct CollectiveCall {
  enum class Kind : uint32_t { all_reduce, reduce, broadcast, all_gather, reduce_scatter };
  Kind kind = Kind::all_reduce;
  uint32_t type = 0;     // ncclDataType_t
  uint32_t op = 0;       // ncclRedOp_t
  int32_t root = 0;      // of reduce and broadcast
  uint64_t numbers = 0;  // the count that was given

  bool operator==(const CollectiveCall&) const = default;
  [[nodiscard]] std::string text() const;
};

class Meeting {
 public:
  static constexpr size_t kSlotBytes = 1 << 20;

  /// Blocks until all ranks have made theirs. `name`: the same for all, and no other group's.
  Meeting(const std::string& name, int ranks, int rank);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int rank() const { return rank_; }
  /// What a rank shows the others: at most kSlotBytes.
  [[nodiscard]] char* slot(int rank) const;
  /// Blocks until all ranks call it. False if this rank has called abort().
  [[nodiscard]] bool wait();
  /// wait(), and ends the process if another rank calls something else: real ranks would hang, or mix their numbers.
  [[nodiscard]] bool agree(const CollectiveCall& own);
  /// Ends this rank's waiting, from any thread.
  void abort();
  /// This rank will not call again.
  void leave();
  /// Returns true if another rank's process has ended without leaving the group.
  [[nodiscard]] bool has_lost_a_rank() const;

 private:
  struct Shared;
  struct Place;
  [[nodiscard]] Place& place(int rank) const;

  const int ranks_, rank_;
  Shared* shared_ = nullptr;  // kept until the process ends: streams may still use it
  std::atomic<bool> aborted_ = false;
};

}  // namespace simulated
