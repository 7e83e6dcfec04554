// Finds the tokens that are prefixes of a string, with a trie over bytes. Its nodes are ordered by depth, so that
// siblings are adjacent.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin::tokenizers {

class TokenTrie {
 public:
  TokenTrie() = default;
  /// Takes tokens and their numbers. Skips empty tokens; of two equal tokens the first counts.
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  /// Calls use(bytes, number) for every token that text begins with at `at`, from the shortest on. Returns how many
  /// bytes it looked at.
  template <class Use>
  size_t for_each_prefix(std::string_view text, size_t at, Use use) const {
    uint32_t node = at < text.size() ? first_[static_cast<unsigned char>(text[at])] : 0;
    size_t size = 1;
    for (; node != 0; ++size) {
      if (nodes_[node].number >= 0) use(size, nodes_[node].number);
      if (at + size >= text.size()) break;
      node = child(nodes_[node], text[at + size]);
    }
    return size;
  }
  [[nodiscard]] bool begins_with(char first) const { return first_[static_cast<unsigned char>(first)] != 0; }
  [[nodiscard]] bool empty() const { return nodes_.size() <= 1; }

 private:
  struct Node {
    uint32_t children = 0;  // the first of them
    uint16_t count = 0;
    unsigned char byte = 0;
    int32_t number = -1;  // of the token that ends here
  };
  [[nodiscard]] uint32_t child(const Node& node, char byte) const;

  std::vector<Node> nodes_;               // 0: none
  std::array<uint32_t, 256> first_ = {};  // node by a token's first byte
};

}  // namespace levin::tokenizers
