// A text and the words into which pre-tokenizers have cut it so far.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/tokenizers/regex.h"

namespace levin::tokenizers {

struct Word {
  size_t begin, end;  // in Words::text
  bool is_first;      // begins where the text that is encoded begins
};

struct Words {
  std::string text;
  std::vector<Word> list;
  /// The words are to be written in GPT-2's characters for bytes (byte_characters.h), which is left to the model: it
  /// knows most words already.
  bool are_bytes = false;

  [[nodiscard]] std::string_view view(const Word& word) const {
    return std::string_view(text).substr(word.begin, word.end - word.begin);
  }
  /// Writes the words in those characters, if they are to be.
  void write_bytes();
};

/// What becomes of the parts of a word that a pattern matches (SplitDelimiterBehavior).
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Piece {
  size_t begin, end;
  bool is_match;
};

/// Joins pieces as the behavior says; what is to be removed is left out.
void apply(SplitBehavior behavior, std::vector<Piece>& pieces);

/// Cuts every word: `find_pieces(word, pieces)` appends its parts without gaps, by whether they match.
template <class FindPieces>
void split_words(Words& words, SplitBehavior behavior, FindPieces find_pieces) {
  std::vector<Word> cut;
  std::vector<Piece> pieces;
  for (const Word& word : words.list) {
    pieces.clear();
    find_pieces(words.view(word), pieces);
    apply(behavior, pieces);
    for (const Piece& piece : pieces) {
      if (piece.begin == piece.end) continue;
      cut.push_back({word.begin + piece.begin, word.begin + piece.end, word.is_first && piece.begin == 0});
    }
  }
  words.list = std::move(cut);
}

}  // namespace levin::tokenizers
