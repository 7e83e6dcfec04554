#include "levin/data/tokenizers/bpe_merges.h"

#include <queue>

namespace levin::tokenizers {

namespace {

// A linked list of tokens: joining two does not move the others.
struct Part {
  int32_t token;          // -1 if it was joined to the part before
  int32_t before, after;  // indices; -1 if there is none
};

struct Candidate {
  int32_t rank, index, left, right, joined;
  // std::priority_queue then has the lowest rank on top, and the leftmost pair of that rank.
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : index > other.index; }
};

}  // namespace

void BpeMerges::join(std::vector<int32_t>& tokens, size_t first) const {
  const auto count = static_cast<int32_t>(tokens.size() - first);
  std::vector<Part> parts(tokens.size() - first);
  for (int32_t i = 0; i < count; ++i) {
    parts[static_cast<size_t>(i)] = {tokens[first + static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t index) {
    if (index < 0 || parts[static_cast<size_t>(index)].after < 0) return;
    const Part& left = parts[static_cast<size_t>(index)];
    const int32_t right = parts[static_cast<size_t>(left.after)].token;
    const auto found = merges_.find(pair_of(left.token, right));
    if (found != merges_.end()) queue.push({found->second.rank, index, left.token, right, found->second.token});
  };
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Part& left = parts[static_cast<size_t>(best.index)];
    if (left.token != best.left || left.after < 0) continue;  // has been joined to another part
    Part& right = parts[static_cast<size_t>(left.after)];
    if (right.token != best.right) continue;
    left.token = best.joined;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) parts[static_cast<size_t>(left.after)].before = best.index;
    consider(left.before);
    consider(best.index);
  }
  tokens.resize(first);
  for (const Part& part : parts) {
    if (part.token >= 0) tokens.push_back(part.token);
  }
}

}  // namespace levin::tokenizers
