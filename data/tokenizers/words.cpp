#include "levin/data/tokenizers/words.h"

#include <algorithm>

#include "levin/data/tokenizers/byte_characters.h"

namespace levin::tokenizers {

namespace {

// A match is joined to the part before it, unless that is a match too.
void merge_with_previous(std::vector<Piece>& pieces) {
  std::vector<Piece> merged;
  bool was_match = false;
  for (const Piece& piece : pieces) {
    if (piece.is_match && !was_match && !merged.empty()) {
      merged.back().end = piece.end;
    } else {
      merged.push_back(piece);
    }
    was_match = piece.is_match;
  }
  pieces = std::move(merged);
}

void merge_with_next(std::vector<Piece>& pieces) {
  std::vector<Piece> merged;
  bool was_match = false;
  for (size_t i = pieces.size(); i-- > 0;) {
    if (pieces[i].is_match && !was_match && !merged.empty()) {
      merged.back().begin = pieces[i].begin;
    } else {
      merged.push_back(pieces[i]);
    }
    was_match = pieces[i].is_match;
  }
  std::reverse(merged.begin(), merged.end());
  pieces = std::move(merged);
}

void merge_equal(std::vector<Piece>& pieces) {
  std::vector<Piece> merged;
  for (const Piece& piece : pieces) {
    if (!merged.empty() && merged.back().is_match == piece.is_match) {
      merged.back().end = piece.end;
    } else {
      merged.push_back(piece);
    }
  }
  pieces = std::move(merged);
}

}  // namespace

void apply(SplitBehavior behavior, std::vector<Piece>& pieces) {
  switch (behavior) {
    case SplitBehavior::removed: std::erase_if(pieces, [](const Piece& piece) { return piece.is_match; }); return;
    case SplitBehavior::isolated: return;
    case SplitBehavior::merged_with_previous: return merge_with_previous(pieces);
    case SplitBehavior::merged_with_next: return merge_with_next(pieces);
    case SplitBehavior::contiguous: return merge_equal(pieces);
  }
}

void Words::write_bytes() {
  if (!are_bytes) return;
  are_bytes = false;
  const auto no_prefix = [](std::string_view, const Word&) { return ""; };
  rewrite_words(*this, no_prefix, [](std::string_view part, std::string& to) { append_byte_characters(to, part); });
}

}  // namespace levin::tokenizers
