// liblevin_sentencepiece.so: the one file that uses SentencePiece, in a separate library (sentence_piece_model.h).
#include <sentencepiece_processor.h>

#include "levin/data/text/sentence_piece_model.h"

namespace {

class Model final : public levin::SentencePieceModel {
 public:
  std::string load(const std::string& bytes) { return text_of(processor_.LoadFromSerializedProto(bytes)); }

  [[nodiscard]] int pieces() const override { return processor_.GetPieceSize(); }
  [[nodiscard]] Ids ids() const override {
    return {processor_.unk_id(), processor_.bos_id(), processor_.eos_id(), processor_.pad_id()};
  }
  [[nodiscard]] std::string encode(std::string_view text, std::vector<int>& ids) const override {
    return text_of(processor_.Encode(text, &ids));
  }
  [[nodiscard]] std::string decode(const std::vector<int>& ids, std::string& text) const override {
    return text_of(processor_.Decode(ids, &text));
  }

 private:
  static std::string text_of(const sentencepiece::util::Status& status) { return status.ok() ? "" : status.ToString(); }

  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

extern "C" levin::SentencePieceModel* levin_open_sentence_piece(const std::string& bytes, std::string& problem) {
  auto model = std::make_unique<Model>();
  problem = model->load(bytes);
  return problem.empty() ? model.release() : nullptr;
}
