#include "levin/data/tokenizers/token_trie.h"

#include <algorithm>

namespace levin::tokenizers {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto equal = [](const auto& a, const auto& b) { return a.first == b.first; };
  tokens.erase(std::unique(tokens.begin(), tokens.end(), equal), tokens.end());
  if (!tokens.empty() && tokens.front().first.empty()) tokens.erase(tokens.begin());

  // A node and the range of sorted tokens that pass through it, its depth in bytes.
  struct Open {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Open> open = {{0, 0, tokens.size(), 0}};
  for (size_t next = 0; next < open.size(); ++next) {
    const Open parent = open[next];
    const auto children = static_cast<uint32_t>(nodes_.size());
    for (size_t begin = parent.begin; begin < parent.end;) {
      const char byte = tokens[begin].first[parent.depth];
      size_t end = begin + 1;
      while (end < parent.end && tokens[end].first[parent.depth] == byte) ++end;
      const auto node = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({0, 0, static_cast<unsigned char>(byte), -1});
      if (parent.depth == 0) first_[static_cast<unsigned char>(byte)] = node;
      if (tokens[begin].first.size() == parent.depth + 1) nodes_[node].number = tokens[begin++].second;
      if (begin < end) open.push_back({node, begin, end, parent.depth + 1});
      begin = end;
    }
    nodes_[parent.node].children = children;
    nodes_[parent.node].count = static_cast<uint16_t>(nodes_.size() - children);
  }
}

uint32_t TokenTrie::child(const Node& node, char byte) const {
  const auto wanted = static_cast<unsigned char>(byte);
  const Node* const begin = nodes_.data() + node.children;
  const Node* const end = begin + node.count;
  const Node* found = begin;
  if (node.count <= 8) {
    while (found != end && found->byte < wanted) ++found;
  } else {
    found = std::lower_bound(begin, end, wanted, [](const Node& one, unsigned char b) { return one.byte < b; });
  }
  return found != end && found->byte == wanted ? static_cast<uint32_t>(found - nodes_.data()) : 0;
}

}  // namespace levin::tokenizers
