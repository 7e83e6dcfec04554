#include "levin/data/text/sentence_piece_model.h"

#include "levin/core/process/shared_library.h"

namespace levin {

namespace {

using Open = SentencePieceModel* (*)(const std::string& bytes, std::string& problem);

Open opened() {
  static const Open open = [] {
    const std::string folder = folder_of_code(reinterpret_cast<const void*>(&open_sentence_piece));
    SharedLibrary library(folder + "/liblevin_sentencepiece.so", "SentencePiece",
                          "Levin's library for it is next to liblevin.so and needs the package libsentencepiece0.",
                          SharedLibrary::Names::own);
    library.keep();
    Open found = nullptr;
    library.find(found, "levin_open_sentence_piece");
    return found;
  }();
  return open;
}

}  // namespace

std::unique_ptr<SentencePieceModel> open_sentence_piece(const std::string& bytes, std::string& problem) {
  return std::unique_ptr<SentencePieceModel>(opened()(bytes, problem));
}

}  // namespace levin
