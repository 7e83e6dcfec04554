// A text and the words into which pre-tokenizers have cut it so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/tokenizers/budget.h"

namespace levin::tokenizers {

struct Word {
  size_t begin, end;  // in Words::text
  size_t first;       // as of a NormalText: bytes at its beginning that stand for the first character

  /// Returns the part from byte `from` to byte `to` of the word.
  [[nodiscard]] Word part(size_t from, size_t to) const {
    return {begin + from, begin + to, std::min(std::max(first, from), to) - from};
  }
};

struct Words {
  std::string text;
  std::vector<Word> list;
  Budget& budget;
  /// The words still have to be written in GPT-2's byte characters (byte_characters.h). The model does so, because it
  /// has seen most words before.
  bool are_bytes = false;

  [[nodiscard]] std::string_view view(const Word& word) const {
    return std::string_view(text).substr(word.begin, word.end - word.begin);
  }
  /// Writes the words in byte characters if are_bytes is set.
  void write_bytes();
};

/// Rewrites every word: puts prefix(word's text, word) before it, and calls rewrite(part, output) for the bytes that
/// stand for the first character, then for the rest.
template <class Prefix, class Rewrite>
void rewrite_words(Words& words, Prefix prefix, Rewrite rewrite) {
  const std::string before = std::move(words.text);
  std::string written;
  written.reserve(before.size() + before.size() / 4 + 8);
  for (Word& word : words.list) {
    const std::string_view text = std::string_view(before).substr(word.begin, word.end - word.begin);
    const size_t begin = written.size();
    written += prefix(text, word);
    if (word.first > 0) rewrite(text.substr(0, word.first), written);
    const size_t first = word.first > 0 ? written.size() - begin : 0;
    rewrite(text.substr(word.first), written);
    word = {begin, written.size(), first};
  }
  words.text = std::move(written);
  words.budget.check_bytes(words.text.size());
}

/// What happens to the parts of a word that a pattern matches (SplitDelimiterBehavior).
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Piece {
  size_t begin, end;
  bool is_match;
};

/// Joins pieces according to the behavior; drops pieces that it removes.
void apply(SplitBehavior behavior, std::vector<Piece>& pieces);

/// Cuts every word: find_pieces(word, pieces) appends its parts without gaps and marks the matches.
template <class FindPieces>
void split_words(Words& words, SplitBehavior behavior, FindPieces find_pieces) {
  std::vector<Word> cut;
  std::vector<Piece> pieces;
  words.budget.spend(words.text.size());
  for (const Word& word : words.list) {
    pieces.clear();
    find_pieces(words.view(word), pieces);
    apply(behavior, pieces);
    for (const Piece& piece : pieces) {
      if (piece.begin < piece.end) cut.push_back(word.part(piece.begin, piece.end));
    }
  }
  words.list = std::move(cut);
}

}  // namespace levin::tokenizers
