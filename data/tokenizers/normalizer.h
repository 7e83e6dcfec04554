// Normalizers of tokenizer.json: they change the text before it is cut into words.
#pragma once

#include <memory>
#include <string>

#include "levin/data/tokenizers/budget.h"
#include "levin/data/tokenizers/json_node.h"

namespace levin::tokenizers {

/// A text, or what is between two added tokens, on its way through the normalizers.
struct NormalText {
  std::string text;  // valid UTF-8
  /// Bytes at its beginning that stand for the first character of the text that is encoded; 0: for none of it.
  size_t first = 0;
};

/// Immutable: any thread may use one.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Throws DataError.
  virtual void normalize(NormalText& text, Budget& budget) const = 0;
};

/// Null if the node is. What cannot be used is noted in the node.
[[nodiscard]] std::unique_ptr<const Normalizer> make_normalizer(const JsonNode& node, int depth = 0);

}  // namespace levin::tokenizers
