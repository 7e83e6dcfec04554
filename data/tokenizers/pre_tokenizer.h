// Pre-tokenizers of tokenizer.json: they cut the text into words, which a model then cuts into tokens.
#pragma once

#include <memory>

#include "levin/data/tokenizers/json_node.h"
#include "levin/data/tokenizers/words.h"

namespace levin::tokenizers {

/// Immutable: any thread may use one.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Throws DataError.
  virtual void cut(Words& words) const = 0;
};

/// Null if the node is. What cannot be used is noted in the node.
[[nodiscard]] std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const JsonNode& node, int depth = 0);

/// Metaspace, which also is a decoder.
struct MetaspaceOptions {
  enum class Prepend { first, never, always };
  char32_t replacement = U'\u2581';
  Prepend prepend = Prepend::always;
  bool splits = true;
};
[[nodiscard]] MetaspaceOptions read_metaspace(const JsonNode& node);

}  // namespace levin::tokenizers
