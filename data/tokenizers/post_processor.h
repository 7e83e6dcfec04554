// Post-processors of tokenizer.json: they put special tokens around one text or a pair.
#pragma once

#include <memory>

#include "levin/data/tokenizers/encoding.h"

namespace levin::tokenizers {

/// Immutable: any thread may use one.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// Turns one or two encodings into the encodings whose concatenation is the result.
  virtual void process(std::vector<Encoding>& encodings, bool add_special_tokens, Budget& budget) const = 0;
  /// Returns how many tokens it adds to one text or a pair.
  [[nodiscard]] virtual int64_t added(bool is_pair) const = 0;
};

/// Null if the node is, or if it does not change tokens. What cannot be used is noted in the node.
[[nodiscard]] std::unique_ptr<const PostProcessor> make_post_processor(const JsonNode& node);

}  // namespace levin::tokenizers
