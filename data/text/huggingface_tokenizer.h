// The tokenizers of Hugging Face: what their package "tokenizers" reads from a tokenizer.json, with the same tokens.
//
//   const levin::HuggingFaceTokenizer bert("all-MiniLM-L6-v2");     // the folder, or its tokenizer.json
//   bert.encode("In the beginning", true).ids;                      // [CLS] … [SEP], cut and padded as the file says
//   bert.encode_pair("a question", "its answer").type_ids;
//   bert.encode("In the beginning");                                // the tokens alone, as every Tokenizer
//
// Not given: offsets into the text, and the parts that truncation cuts off.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/data/text/text_tokenizer.h"
#include "levin/data/tokenizers/encoding.h"

namespace levin {

namespace tokenizers {
struct NormalText;
}

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  /// `path`: tokenizer.json, or the folder with it. Throws a DataError that lists everything in the file that is wrong
  /// or not supported, each with its position in the JSON.
  explicit HuggingFaceTokenizer(const std::string& path);
  /// Same as above, from the contents of a file; `path` is for messages.
  HuggingFaceTokenizer(const std::string& json, const std::string& path);
  ~HuggingFaceTokenizer() override;

  /// The highest id + 1, added tokens included.
  [[nodiscard]] int64_t vocab_size() const override;
  /// Without special tokens, truncation and padding. Bytes that are not UTF-8 count as U+FFFD.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  /// Without special tokens; an unknown token is an error, where the package leaves it out.
  [[nodiscard]] std::string decode(std::span<const int64_t> tokens) const override;

  /// As the package's encode(): with the file's truncation and padding.
  [[nodiscard]] Encoding encode(std::string_view text, bool add_special_tokens) const;
  [[nodiscard]] Encoding encode_pair(std::string_view first, std::string_view second,
                                     bool add_special_tokens = true) const;
  /// All padded to one length, if the file has a padding.
  [[nodiscard]] std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                                   bool add_special_tokens = true) const;
  /// As transformers does with truncation=True and without padding: with special tokens, cut to `max_length` with them,
  /// on the side that tokenizer_config.json names as truncation_side, else tokenizer.json's truncation, else the right.
  [[nodiscard]] std::vector<int32_t> encode_to(std::string_view text, int64_t max_length) const;
  [[nodiscard]] std::string decode(std::span<const int64_t> tokens, bool skip_special_tokens) const;

  [[nodiscard]] std::optional<int32_t> token_to_id(const std::string& token) const;
  [[nodiscard]] std::optional<std::string> id_to_token(int64_t id) const;

  /// By tokenizer_config.json or special_tokens_map.json in the same folder; pad also by the file's padding.
  [[nodiscard]] std::optional<int32_t> pad_id() const;
  [[nodiscard]] std::optional<int32_t> bos_id() const { return named_id("bos_token"); }
  [[nodiscard]] std::optional<int32_t> eos_id() const { return named_id("eos_token"); }
  /// "unk_token", "cls_token", "sep_token", "mask_token", …
  [[nodiscard]] std::optional<int32_t> named_id(const std::string& name) const;

 private:
  struct Parts;
  void read(const std::string& json);
  void read_names(const std::string& folder);
  void append_tokens(tokenizers::NormalText text, std::vector<int32_t>& ids, tokenizers::Budget& budget) const;
  void append_words(tokenizers::NormalText text, std::vector<int32_t>& ids, tokenizers::Budget& budget) const;
  [[nodiscard]] std::vector<int32_t> encode_within(std::string_view text, tokenizers::Budget& budget) const;
  [[nodiscard]] Encoding encode_texts(std::string_view first, const std::string_view* second,
                                      bool add_special_tokens) const;

  std::string path_;
  std::unique_ptr<Parts> parts_;
  std::map<std::string, std::string> names_;  // of special tokens, by their role
};

namespace detail {
/// A file that ends in .json, or a folder with a tokenizer.json.
[[nodiscard]] bool names_huggingface_tokenizer(const std::string& name);
}  // namespace detail

}  // namespace levin
