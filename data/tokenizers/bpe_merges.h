// The merges of byte-pair encoding (Sennrich et al. 2016): which pairs of adjacent tokens become one token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace levin::tokenizers {

class BpeMerges {
 public:
  void reserve(size_t count) { merges_.reserve(count); }
  /// Makes the pair become `token`. Pairs of lower rank are joined first. Replaces an earlier merge of the pair.
  void set(int32_t left, int32_t right, int32_t rank, int32_t token) { merges_[pair_of(left, right)] = {rank, token}; }

  /// Joins pairs among the tokens from index `first` on, always the leftmost pair of the lowest rank, until no pair has
  /// a merge. Takes time n log n.
  void join(std::vector<int32_t>& tokens, size_t first = 0) const;

 private:
  struct Merge {
    int32_t rank, token;
  };
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace levin::tokenizers
