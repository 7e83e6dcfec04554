#include "levin/data/tokenizers/pattern.h"

#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"

namespace levin::tokenizers {

namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;      // patterns of known tokenizers have a few hundred
constexpr unsigned kMaxNesting = 250;              // groups
constexpr unsigned long kMaxRetries = 10'000'000;  // of one match
constexpr size_t kMinStack = size_t{1} << 20;  // steps to go back to (of some 50 bytes), besides one per byte of text
constexpr size_t kSearchSteps = size_t{1} << 26;  // of a search before it counts as slow: retries x bytes of text
constexpr size_t kStarts = 32;                    // attempts between two looks at the clock

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

// Initializes the library; returns its own syntax without callouts, which could abort or count across matches.
OnigSyntaxType* syntax() {
  static OnigSyntaxType made = [] {
    OnigEncoding encoding = ONIG_ENCODING_UTF8;
    onig_initialize(&encoding, 1);
    onig_set_parse_depth_limit(kMaxNesting);
    OnigSyntaxType own = *ONIG_SYNTAX_ONIGURUMA;
    own.op2 &= ~(ONIG_SYN_OP2_QMARK_BRACE_CALLOUT_CONTENTS | ONIG_SYN_OP2_ASTERISK_CALLOUT_NAME);
    return own;
  }();
  return &made;
}

// Debian's Oniguruma 6.9.8 has few symbols in [:punct:]; the newer one inside Hugging Face's package has all of \p{S}.
std::string with_all_punctuation(std::string_view pattern) {
  std::string rewritten;
  int depth = 0;  // of [ ]
  for (size_t i = 0, size = 0; i < pattern.size(); i += size) {
    const std::string_view rest = pattern.substr(i);
    const bool is_negated = rest.starts_with("[:^punct:]");
    size = 1;
    if (depth > 0 && (is_negated || rest.starts_with("[:punct:]"))) {
      size = rest.find(']') + 1;
      rewritten += is_negated ? "[^\\p{P}\\p{S}]" : "[\\p{P}\\p{S}]";
      continue;
    }
    if (rest[0] == '\\') {
      size = std::min<size_t>(2, rest.size());
    } else if (rest[0] == '[') {
      ++depth;
      size = rest.starts_with("[^]")                            ? 3
             : rest.starts_with("[]") || rest.starts_with("[^") ? 2
                                                                : 1;  // ] is literal here
    } else if (rest[0] == ']' && depth > 0) {
      --depth;
    }
    rewritten += rest.substr(0, size);
  }
  return rewritten;
}

template <class... Info>
std::string onig_message(int code, Info*... info) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int size = onig_error_code_to_str(text.data(), code, info...);
  return {reinterpret_cast<const char*>(text.data()), static_cast<size_t>(size)};
}

// What one search writes to; each thread has its own because threads share patterns.
struct Scratch {
  Scratch() {
    onig_initialize_match_param(limits);
    onig_set_retry_limit_in_match_of_match_param(limits, kMaxRetries);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    onig_region_free(region, 1);
    onig_free_match_param(limits);
  }
  OnigRegion* region = onig_region_new();
  OnigMatchParam* limits = onig_new_match_param();
};

}  // namespace

struct Regex::Code {
  explicit Code(std::string text) : pattern(std::move(text)) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { onig_free(regex); }
  std::string pattern;
  OnigRegex regex = nullptr;
};

Regex::Regex(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    throw Error("expected a pattern of at most " + std::to_string(kMaxPatternBytes) + " bytes, saw one of " +
                std::to_string(pattern.size()) + ": " + cut_text(pattern) +
                ". Cut it into several steps of a Sequence");
  }
  auto made = std::make_shared<Code>(pattern);
  OnigErrorInfo info{};
  const std::string rewritten = with_all_punctuation(pattern);
  const OnigUChar* const begin = bytes_of(rewritten);
  const int code =
      onig_new(&made->regex, begin, begin + rewritten.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, syntax(), &info);
  if (code != ONIG_NORMAL)
    throw Error("the pattern " + cut_text(pattern) + " has an error: " + onig_message(code, &info));
  code_ = std::move(made);
}

bool Regex::find(std::string_view text, size_t from, Match& match, Budget& budget) const {
  thread_local const Scratch scratch;
  const auto fail = [&](const std::string& reason) {
    throw DataError("tokenizer: the pattern " + cut_text(code_->pattern) + " cannot be matched with text of " +
                    std::to_string(text.size()) + " bytes: " + reason + ". Cut the text into parts.");
  };
  if (text.size() > INT_MAX) fail("the text is too long");
  OnigMatchParam* const limits = scratch.limits;
  onig_set_match_stack_limit_size_of_match_param(limits, static_cast<unsigned>(kMinStack + text.size()));
  const OnigUChar* const begin = bytes_of(text);
  const OnigUChar* const end = begin + text.size();
  const auto option = [&](size_t at) { return at == from ? ONIG_OPTION_NONE : ONIG_OPTION_NOT_BEGIN_POSITION; };  // \G
  const unsigned long few_retries = std::clamp<unsigned long>(kSearchSteps / (text.size() + 1), kStarts, 1 << 20);
  budget.spend(Budget::one_match);
  int found = ONIG_MISMATCH;
  for (size_t at = from; found == ONIG_MISMATCH;) {
    onig_set_retry_limit_in_search_of_match_param(limits, few_retries);
    found = onig_search_with_param(code_->regex, begin, end, begin + at, end, scratch.region, option(at), limits);
    if (found == ONIG_MISMATCH) return false;
    if (found != ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER) break;
    // The search is slow, and cannot look at the clock between two attempts (its range also limits where a match may
    // end): make a few attempts here.
    onig_set_retry_limit_in_search_of_match_param(limits, 0);
    found = ONIG_MISMATCH;
    for (size_t tried = 0; found == ONIG_MISMATCH && tried < kStarts; ++tried) {
      if (at > text.size()) return false;
      found = onig_match_with_param(code_->regex, begin, end, begin + at, scratch.region, option(at), limits);
      do ++at;
      while (at < text.size() && (text[at] & 0xc0) == 0x80);
    }
    budget.spend(16 * Budget::one_match);  // enough to make it look at the clock
  }
  if (found < 0) fail(onig_message(found));
  match = {static_cast<size_t>(scratch.region->beg[0]), static_cast<size_t>(scratch.region->end[0])};
  return true;
}

size_t find_literal(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* const found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool Pattern::find(std::string_view text, size_t from, Regex::Match& match, Budget& budget) const {
  if (regex_) return regex_->find(text, from, match, budget);
  const size_t begin = find_literal(text, literal_, from);
  match = {begin, begin + literal_.size()};
  budget.spend(std::min(begin, text.size()) - from);
  return begin != std::string_view::npos;
}

std::string Pattern::replaced(std::string_view text, std::string_view content, Budget& budget, size_t& first) const {
  std::string result;
  if (text.empty()) return result;
  size_t end = 0, new_first = 0;
  const auto append_text = [&](size_t to) {
    result.append(text.substr(end, to - end));
    if (end < first) new_first = result.size() - (std::max(to, first) - first);
  };
  const auto find_next = [&](std::string_view in, size_t from, Regex::Match& match) {
    return find(in, from, match, budget);
  };
  for_each_match(text, find_next, [&](size_t begin, size_t match_end) {
    append_text(begin);
    budget.check_bytes(result.size() + content.size());
    result.append(content);
    end = match_end;
    // The package counts the inserted content towards the last character of the match.
    if (first > 0 && end <= first) new_first = result.size();
  });
  append_text(text.size());
  first = new_first;
  return result;
}

Pattern make_pattern(const JsonNode& node) {
  if (node.value().is_string()) return Pattern(node.text());
  if (!node.at("String").is_null()) return Pattern(node.text("String"));
  if (node.at("Regex").is_null()) {
    node.refuse_value("an object with String or Regex");
    return Pattern(std::string());
  }
  const std::string pattern = node.text("Regex");
  try {
    return Pattern(Regex(pattern));
  } catch (const Error& error) {
    node.at("Regex").refuse(std::string(error.what()) + ".");
  }
  return Pattern(std::string());
}

}  // namespace levin::tokenizers
