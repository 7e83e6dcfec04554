// The interface to a SentencePiece model. Its library is loaded with the first model, with local symbols: both it and
// LibTorch's c10 define FLAGS_minloglevel; in one program each would write to the other's memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace levin {

/// A SentencePiece model, without SentencePiece's types in its interface.
class SentencePieceModel {
 public:
  /// Ids of special pieces, -1 where the model has none.
  struct Ids {
    int unknown = -1, start = -1, end = -1, pad = -1;
  };
  virtual ~SentencePieceModel() = default;
  [[nodiscard]] virtual int pieces() const = 0;
  [[nodiscard]] virtual Ids ids() const = 0;
  /// Both return the error, or "".
  [[nodiscard]] virtual std::string encode(std::string_view text, std::vector<int>& ids) const = 0;
  [[nodiscard]] virtual std::string decode(const std::vector<int>& ids, std::string& text) const = 0;
};

/// Returns the model in `bytes`; null, with `problem` set, if they are not a model. Throws Error if the library cannot
/// be opened.
[[nodiscard]] std::unique_ptr<SentencePieceModel> open_sentence_piece(const std::string& bytes, std::string& problem);

}  // namespace levin
