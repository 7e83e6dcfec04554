// Flags that ranks exchange along with their gradients: every rank receives a flag if any rank has set it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace levin {

enum class RankNote : uint8_t { nonfinite_loss, stop, cut_epoch, signal, save_file };
inline constexpr size_t kRankNotes = 5;

/// A set of notes.
class RankNotes {
 public:
  void add(RankNote what) { said_[static_cast<size_t>(what)] = true; }
  [[nodiscard]] bool has(RankNote what) const { return said_[static_cast<size_t>(what)]; }
  /// Removes the note; returns whether it was set.
  [[nodiscard]] bool take(RankNote what) { return std::exchange(said_[static_cast<size_t>(what)], false); }
  [[nodiscard]] bool empty() const { return said_ == std::array<bool, kRankNotes>{}; }
  RankNotes& operator|=(const RankNotes& others) {
    for (size_t k = 0; k < kRankNotes; ++k) said_[k] = said_[k] || others.said_[k];
    return *this;
  }

  /// As numbers that can be summed over ranks, and back: a sum above 0 means that some rank has set the note.
  [[nodiscard]] std::array<double, kRankNotes> numbers() const {
    std::array<double, kRankNotes> numbers = {};
    for (size_t k = 0; k < kRankNotes; ++k) numbers[k] = said_[k] ? 1 : 0;
    return numbers;
  }
  [[nodiscard]] static RankNotes from(const std::array<double, kRankNotes>& sums) {
    RankNotes notes;
    for (size_t k = 0; k < kRankNotes; ++k) notes.said_[k] = sums[k] > 0;
    return notes;
  }

 private:
  std::array<bool, kRankNotes> said_ = {};
};

}  // namespace levin
