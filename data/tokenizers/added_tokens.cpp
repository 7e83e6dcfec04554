#include "levin/data/tokenizers/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/tokenizers/unicode.h"

namespace levin::tokenizers {

namespace {

constexpr size_t kMaxAddedTokens = 1 << 20;

AddedToken read_added(const JsonNode& node) {
  AddedToken token;
  token.id = static_cast<int32_t>(node.count("id", kMaxToken));
  token.content = node.text("content");
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.special = node.flag("special", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

// Not before `from`.
size_t spaces_before(std::string_view text, size_t end, size_t from) {
  while (end > from) {
    size_t last = end - 1;
    while ((text[last] & 0xc0) == 0x80) --last;
    if (!is_space(character_at(text, last).code)) break;
    end = last;
  }
  return end;
}

size_t spaces_after(std::string_view text, size_t begin) {
  while (begin < text.size() && is_space(character_at(text, begin).code)) begin += size_of_character(text[begin]);
  return begin;
}

bool ends_in_word(std::string_view text, size_t end) {
  if (end == 0) return false;
  size_t last = end - 1;
  while ((text[last] & 0xc0) == 0x80) --last;
  return is_word(character_at(text, last).code);
}

}  // namespace

AddedTokens::AddedTokens(const JsonNode& node, const TokenModel& model, const Normalizer* normalizer, Budget& budget) {
  if (node.is_null()) return;
  const std::vector<JsonNode> all = node.elements();
  if (all.size() > kMaxAddedTokens) {
    node.refuse("expected at most " + std::to_string(kMaxAddedTokens) + " tokens, saw " + std::to_string(all.size()) +
                ".");
    return;
  }
  for (const JsonNode& one : all) {
    AddedToken token = read_added(one);
    if (token.content.empty()) continue;
    const std::string* const in_model = model.vocabulary().token_of(token.id);
    const int32_t id_in_model = model.vocabulary().id_of(token.content);
    if (id_in_model != kNoToken && id_in_model != token.id) {
      one.refuse("model.vocab has " + cut_text(token.content) + " with the id " + std::to_string(id_in_model) +
                 ", saw " + std::to_string(token.id) + ".");
    } else if (in_model != nullptr && *in_model != token.content) {
      one.refuse("the id " + std::to_string(token.id) + " of " + cut_text(token.content) + " belongs to " +
                 cut_text(*in_model) + " in model.vocab.");
    } else if (by_id_.contains(token.id) || by_content_.contains(token.content)) {
      one.refuse("another added token has the id " + std::to_string(token.id) + " or the content " +
                 cut_text(token.content) + " already.");
    } else {
      if (token.special) specials_.insert(token.content);
      by_content_[token.content] = by_id_[token.id] = tokens_.size();
      tokens_.push_back(std::move(token));
    }
  }
  // Of two that look the same after normalizing, a special one counts, then the first.
  std::vector<size_t> order(tokens_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tokens_[a].special > tokens_[b].special; });
  patterns_.resize(tokens_.size());
  std::vector<std::pair<std::string_view, int32_t>> raw, normalized;
  for (const size_t i : order) {
    NormalText pattern{valid_utf8(tokens_[i].content)};
    if (tokens_[i].normalized && normalizer != nullptr) normalizer->normalize(pattern, budget);
    budget.keep_bytes(pattern.text.size());
    patterns_[i] = std::move(pattern.text);
    tokens_[i].text = tokens_[i].normalized ? patterns_[i] : tokens_[i].content;
    (tokens_[i].normalized ? normalized : raw).emplace_back(patterns_[i], static_cast<int32_t>(i));
  }
  raw_ = TokenTrie(raw);
  normalized_ = TokenTrie(normalized);
}

bool AddedTokens::fits(const AddedToken& token, std::string_view text, size_t begin, size_t end) const {
  if (!token.single_word) return true;
  return !ends_in_word(text, begin) && !(end < text.size() && is_word(character_at(text, end).code));
}

std::vector<AddedTokens::Part> AddedTokens::find(std::string_view text, bool normalized, Budget& budget) const {
  std::vector<Part> parts;
  const TokenTrie& trie = normalized ? normalized_ : raw_;
  size_t done = 0, spaces_end = 0;
  budget.spend(text.size());
  for (size_t at = 0; !trie.empty() && at < text.size();) {
    size_t longest = 0;
    int32_t found = kNoToken;
    if (trie.begins_with(text[at])) {
      budget.spend(trie.for_each_prefix(text, at, [&](size_t size, int32_t number) {
        longest = size;
        found = number;
      }));
    }
    if (found == kNoToken) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at, end = at + longest;
    at = end;
    if (!fits(token, text, begin, end)) continue;
    if (token.lstrip) begin = std::max(spaces_before(text, begin, done), done);
    if (token.rstrip) {
      // A token of spaces may be found again and again in spaces that one before it has taken.
      if (end > spaces_end) spaces_end = spaces_after(text, end);
      end = spaces_end;
    }
    if (begin >= end) continue;  // a space that the token before has taken with it
    if (done < begin) parts.push_back({done, begin, kNoToken});
    parts.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), kNoToken});
  return parts;
}

int32_t AddedTokens::id_of(const std::string& content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? kNoToken : tokens_[found->second].id;
}

const AddedToken* AddedTokens::token_of(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace levin::tokenizers
