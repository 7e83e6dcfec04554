// An encoded text, and how it is truncated and padded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/data/tokenizers/budget.h"
#include "levin/data/tokenizers/json_node.h"

namespace levin {

/// Hugging Face's Encoding: vectors of the same length.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;             // 1: of the second text of a pair, as a rule
  std::vector<int32_t> attention_mask;       // 0: padding
  std::vector<int32_t> special_tokens_mask;  // 1: padding, and what a post-processor has added
};

}  // namespace levin

namespace levin::tokenizers {

[[nodiscard]] Encoding make_encoding(std::vector<int32_t> ids, int32_t type_id);
void append(Encoding& to, const Encoding& more);

struct Truncation {
  enum class Strategy { longest_first, only_first, only_second };
  int64_t max_length = 0;
  Strategy strategy = Strategy::longest_first;
  bool from_left = false;
  /// Truncates to max_length - added, where `added` special tokens follow; `second` may be null. Throws DataError if
  /// the text that the strategy truncates is too short.
  void apply(Encoding& first, Encoding* second, int64_t added) const;
};

struct PaddingRule {
  int64_t fixed = 0;  // 0: to the longest of the batch
  int64_t multiple = 0;
  bool on_left = false;
  int32_t id = 0;
  int32_t type_id = 0;
  void apply(std::vector<Encoding>& encodings, const Budget& budget) const;
};

/// Returns nullopt for a null node.
[[nodiscard]] std::optional<Truncation> read_truncation(const JsonNode& node);
[[nodiscard]] std::optional<PaddingRule> read_padding(const JsonNode& node);

}  // namespace levin::tokenizers
