// Memory that the ranks of one host share, and how they take turns in it. Every rank has a slot of two halves. Ranks
// proceed in rounds: in round n each writes into half n % 2 of its own slot, announces it, waits until all have, and
// reads the others' slots. Whoever announces round n + 1 has finished reading round n, so that half is free in round
// n + 2. The memory is an anonymous file (memfd): it has no name in /dev/shm, and ends with its last process.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace levin {

class ShmSegment {
 public:
  using Clock = std::chrono::steady_clock;
  /// What a rank does in a round; ranks whose labels differ have called different collectives.
  using Label = std::array<int64_t, 4>;

  /// Rank 0's: new memory with halves of `half_bytes`. Throws Error where the system refuses.
  ShmSegment(int size, size_t half_bytes);
  /// That of rank 0, which gave `offer`. Throws Error if this process may not open it.
  ShmSegment(const std::string& offer, int rank, int size);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  /// How another process of this host and user finds the memory; on rank 0.
  [[nodiscard]] std::string offer() const;
  /// The rank that errors call this process, where it is another one than here; before the others wait for it.
  void set_name(int64_t rank);
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] size_t half_bytes() const { return half_bytes_; }
  [[nodiscard]] std::byte* half(int rank, uint32_t round) const;

  /// The round that this rank has not announced yet.
  [[nodiscard]] uint32_t next_round() const { return next_round_; }
  /// What this rank has written to its half of the next round is complete.
  void announce(const Label& label);
  /// Waits until all ranks have announced the round before next_round(); false if one has not by `until`. Throws
  /// RankError that names a rank which has ended, or the first one with another label.
  [[nodiscard]] bool await_all(Clock::time_point until);
  /// "rank 1 (process 4711)", the first one that await_all() waits for.
  [[nodiscard]] std::string missing() const;
  /// Makes await_all() throw at once, from any thread.
  void close() { closed_ = true; }

 private:
  struct Page;
  struct Line;

  void map(size_t bytes);
  void enter();
  [[nodiscard]] Line& line(int rank) const;
  [[nodiscard]] bool has_announced(int rank, uint32_t round) const;
  [[nodiscard]] bool await(int rank, uint32_t round, Clock::time_point until);
  [[nodiscard]] bool is_alive(int rank) const;
  [[nodiscard]] std::string text(int rank) const;

  int rank_ = 0;
  int size_;
  size_t half_bytes_ = 0;
  int descriptor_ = -1;
  size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  uint32_t next_round_ = 1;
  std::chrono::microseconds spin_;
  std::atomic<bool> closed_ = false;
};

}  // namespace levin
