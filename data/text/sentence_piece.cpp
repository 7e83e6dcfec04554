#include "levin/data/text/sentence_piece.h"

#include <algorithm>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/text/huggingface_tokenizer.h"

namespace levin {

namespace {

constexpr int32_t kSpecial = SpecialTokens::count;

class SequenceBytes final : public Tokenizer {
 public:
  [[nodiscard]] int64_t vocab_size() const override { return kSpecial + bytes_.vocab_size(); }

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens = bytes_.encode(text);
    for (int32_t& token : tokens) token += kSpecial;
    return tokens;
  }

  [[nodiscard]] std::string decode(std::span<const int64_t> tokens) const override {
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= vocab_size()) {
        throw DataError("byte tokenizer: token " + std::to_string(i) + ": expected 0 to " +
                        std::to_string(vocab_size() - 1) + ", saw " + std::to_string(tokens[i]) + ".");
      }
      if (tokens[i] >= kSpecial) bytes.push_back(tokens[i] - kSpecial);
    }
    return bytes_.decode(bytes);
  }

 private:
  ByteTokenizer bytes_;
};

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& path) : path_(path) {
  const std::string bytes = read_file(path);
  if (bytes.empty()) fail("the file is empty");
  std::string problem;
  model_ = open_sentence_piece(bytes, problem);
  if (model_ == nullptr) fail(problem);
  const SentencePieceModel::Ids ids = model_->ids();
  for (int id = 0; id < model_->pieces(); ++id) {
    const int32_t special = id == ids.unknown ? SpecialTokens::unknown
                            : id == ids.start ? SpecialTokens::start
                            : id == ids.end   ? SpecialTokens::end
                            : id == ids.pad   ? SpecialTokens::pad
                                              : kSpecial;
    number_of_.push_back(special < kSpecial ? special : kSpecial + static_cast<int32_t>(id_of_.size()));
    if (special == kSpecial) id_of_.push_back(id);
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::fail(const std::string& what) const {
  throw DataError(path_ + ": expected a SentencePiece model: " + cut_text(what, 200) +
                  ". Give a file that SentencePiece's trainer wrote, such as XLM-R's sentencepiece.bpe.model.");
}

int64_t SentencePieceTokenizer::vocab_size() const {
  return kSpecial + static_cast<int64_t>(id_of_.size()) + 1;
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const std::string problem = model_->encode(text, ids);
  if (!problem.empty()) throw DataError(path_ + ": \"" + cut_text(std::string(text)) + "\": " + problem + ".");
  std::vector<int32_t> tokens(ids.size());
  std::transform(ids.begin(), ids.end(), tokens.begin(), [&](int id) { return number_of_[static_cast<size_t>(id)]; });
  return tokens;
}

std::string SentencePieceTokenizer::decode(std::span<const int64_t> tokens) const {
  std::vector<int> ids;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size()) {
      throw DataError(path_ + ": token " + std::to_string(i) + ": expected 0 to " + std::to_string(vocab_size() - 1) +
                      ", saw " + std::to_string(tokens[i]) + ".");
    }
    if (tokens[i] == SpecialTokens::unknown) ids.push_back(model_->ids().unknown);
    if (tokens[i] < kSpecial || tokens[i] == vocab_size() - 1) continue;
    ids.push_back(id_of_[static_cast<size_t>(tokens[i] - kSpecial)]);
  }
  std::string text;
  const std::string problem = model_->decode(ids, text);
  if (!problem.empty()) throw DataError(path_ + ": tokens cannot be decoded: " + problem + ".");
  return text;
}

std::shared_ptr<const Tokenizer> make_sequence_tokenizer(const std::string& name) {
  if (name == "byte") return std::make_shared<SequenceBytes>();
  if (name.ends_with(".model")) return std::make_shared<SentencePieceTokenizer>(name);
  if (detail::names_huggingface_tokenizer(name)) return std::make_shared<HuggingFaceTokenizer>(name);
  throw DataError(
      "tokenizer: expected \"byte\", a SentencePiece model, a file that ends in .model, or a tokenizer.json or " +
      std::string("the folder with it; saw \"") + name + "\".");
}

std::vector<int32_t> encode_sequence(const Tokenizer& tokenizer, std::string_view text, int64_t max_length) {
  if (const auto* const other = dynamic_cast<const HuggingFaceTokenizer*>(&tokenizer)) {
    return other->encode_to(text, max_length);
  }
  std::vector<int32_t> tokens = tokenizer.encode(text);
  tokens.insert(tokens.begin(), SpecialTokens::start);
  tokens.push_back(SpecialTokens::end);
  return tokens;
}

int32_t pad_token(const Tokenizer& tokenizer) {
  const auto* const other = dynamic_cast<const HuggingFaceTokenizer*>(&tokenizer);
  if (other == nullptr) return SpecialTokens::pad;
  if (const auto pad = other->pad_id()) return *pad;
  throw DataError(
      "tokenizer: the tokenizer.json has no padding, and no pad_token is named in a tokenizer_config.json or " +
      std::string("special_tokens_map.json next to it. Name one there."));
}

}  // namespace levin
