// Post-processors of tokenizer.json: how special tokens are put around a text or a pair of texts.
#pragma once

#include <memory>

#include "levin/data/tokenizers/encoding.h"

namespace levin::tokenizers {

/// Immutable: any thread may use one.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// One or two encodings become those that, joined, are the result.
  virtual void process(std::vector<Encoding>& encodings, bool add_special_tokens, Budget& budget) const = 0;
  /// Tokens that it adds to a text or a pair.
  [[nodiscard]] virtual int64_t added(bool is_pair) const = 0;
};

/// Null if the node is, or if it does not change tokens. What cannot be used is noted in the node.
[[nodiscard]] std::unique_ptr<const PostProcessor> make_post_processor(const JsonNode& node);

}  // namespace levin::tokenizers
