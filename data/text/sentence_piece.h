// Texts as input of XLM-R's encoder: SentencePiece (Kudo and Richardson 2018, https://aclanthology.org/D18-2012)
// through its library, or bytes, both in the numbers of fairseq's dictionaries, where special tokens come first.
//
//   const auto tokenizer = levin::make_sequence_tokenizer("sentencepiece.bpe.model");
//   tokenizer->encode("In the beginning");    // {360, 70, 136917, …}, without <s> and </s>
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/text/sentence_piece_model.h"
#include "levin/data/text/text_tokenizer.h"

namespace levin {

/// The ids that come before the pieces, as in XLM-R (fairseq/data/dictionary.py).
struct SpecialTokens {
  static constexpr int32_t start = 0;    // <s>: starts a document; its features classify it
  static constexpr int32_t pad = 1;      // <pad>
  static constexpr int32_t end = 2;      // </s>
  static constexpr int32_t unknown = 3;  // <unk>
  static constexpr int32_t count = 4;
};

/// A SentencePiece model. Its ordinary pieces are SpecialTokens::count, … in their order and <mask> is the last number:
/// what SentencePiece itself numbers <unk> 0, <s> 1, </s> 2 and then i is i + 1 here, as in XLM-R, and XLM-R's 250000
/// pieces make a vocabulary of 250002.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// `path`: a model as SentencePiece's trainer writes it. Throws DataError naming the file and what is wrong.
  explicit SentencePieceTokenizer(const std::string& path);
  ~SentencePieceTokenizer() override;

  [[nodiscard]] int64_t vocab_size() const override;
  /// Without <s> and </s>.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  /// Returns the text as the model normalizes it (NFKC and single blanks, as a rule); special tokens are left out, but
  /// <unk>.
  [[nodiscard]] std::string decode(std::span<const int64_t> tokens) const override;

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  std::shared_ptr<const SentencePieceModel> model_;
  std::vector<int32_t> number_of_;  // by the model's id
  std::vector<int> id_of_;          // by number - SpecialTokens::count
};

/// "byte": byte b is SpecialTokens::count + b, 260 tokens; a SentencePiece model, a file that ends in .model; or
/// Hugging Face's tokenizer.json or a folder with it, in its own numbers. Throws DataError.
[[nodiscard]] std::shared_ptr<const Tokenizer> make_sequence_tokenizer(const std::string& name);

/// Returns `text` as the input of an encoder, for a tokenizer of make_sequence_tokenizer: <s> tokens </s>, or what a
/// tokenizer.json puts around it, which then is cut to max_length too.
[[nodiscard]] std::vector<int32_t> encode_sequence(const Tokenizer& tokenizer, std::string_view text,
                                                   int64_t max_length);
/// Returns the number that fills up a row. Throws DataError if a tokenizer.json has none.
[[nodiscard]] int32_t pad_token(const Tokenizer& tokenizer);

}  // namespace levin
