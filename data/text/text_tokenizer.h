// Texts as rows of numbers and back. Tokenizers are immutable: any thread may use one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/core/options/fields.h"

namespace levin {

/// How byte-pair encoding cuts text into words, by the name of the vocabulary: GPT-2's, or the one of
/// cl100k_base.
enum class BpePattern { gpt2, cl100k };
template <>
struct EnumNames<BpePattern> {
  static constexpr EnumName<BpePattern> names[] = {{"gpt2", BpePattern::gpt2}, {"cl100k", BpePattern::cl100k}};
};

/// The interface of tokenizers.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Tokens are 0 … vocab_size - 1.
  [[nodiscard]] virtual int64_t vocab_size() const = 0;
  /// Accepts any bytes, UTF-8 or not: decode() restores them.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// Throws DataError naming an unknown token, and its position.
  [[nodiscard]] virtual std::string decode(std::span<const int64_t> tokens) const = 0;
};

/// A tokenizer for which every byte is a token: 256 of them.
class ByteTokenizer final : public Tokenizer {
 public:
  [[nodiscard]] int64_t vocab_size() const override { return 256; }
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(std::span<const int64_t> tokens) const override;
};

}  // namespace levin
