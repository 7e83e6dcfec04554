// Decoders of tokenizer.json: how tokens become a text again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/data/tokenizers/budget.h"
#include "levin/data/tokenizers/json_node.h"

namespace levin::tokenizers {

/// Immutable: any thread may use one.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Rewrites the texts of tokens; joined, they are the text. Throws DataError.
  virtual void decode(std::vector<std::string>& tokens, Budget& budget) const = 0;
};

/// Null if the node is. What cannot be used is noted in the node.
[[nodiscard]] std::unique_ptr<const Decoder> make_decoder(const JsonNode& node, int depth = 0);

}  // namespace levin::tokenizers
