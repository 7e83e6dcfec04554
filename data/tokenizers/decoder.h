// Decoders of tokenizer.json: they turn tokens back into text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/data/tokenizers/budget.h"
#include "levin/data/tokenizers/json_node.h"

namespace levin::tokenizers {

/// Immutable; threads may share it.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Rewrites the tokens' strings, whose concatenation is the text. Throws DataError.
  virtual void decode(std::vector<std::string>& tokens, Budget& budget) const = 0;
};

/// Returns null for a null node. Notes unsupported parts in the node.
[[nodiscard]] std::unique_ptr<const Decoder> make_decoder(const JsonNode& node, int depth = 0);

}  // namespace levin::tokenizers
