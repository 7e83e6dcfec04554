// Normalizers of tokenizer.json: what is done to a text before it is cut into words.
#pragma once

#include <memory>
#include <string>

#include "levin/data/tokenizers/json_node.h"

namespace levin::tokenizers {

/// Immutable: any thread may use one.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// `text` is valid UTF-8 before and after. Throws DataError.
  virtual void normalize(std::string& text) const = 0;
};

/// Null if the node is. What cannot be used is noted in the node.
[[nodiscard]] std::unique_ptr<const Normalizer> make_normalizer(const JsonNode& node, int depth = 0);

/// sentencepiece's map of characters, a trie and the texts that replace them, in base64.
[[nodiscard]] std::unique_ptr<const Normalizer> make_precompiled_normalizer(const JsonNode& node);

}  // namespace levin::tokenizers
