#define PCRE2_CODE_UNIT_WIDTH 8
#include "levin/data/tokenizers/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>

#include "levin/core/error.h"

namespace levin::tokenizers {

namespace {

constexpr uint32_t kMostBacktracking = 10'000'000;
constexpr uint32_t kMostHeapKiB = 48 << 10;  // of one match that the stack does not hold
constexpr size_t kStarts = 32;               // places to begin at between two looks at the budget

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;

// Where a match is noted; a thread's own, because a pattern is shared by all threads.
pcre2_match_data* own_match_data() {
  thread_local const MatchData data(pcre2_match_data_create(1, nullptr));
  return data.get();
}

pcre2_match_context* own_limits() {
  thread_local const MatchContext limits = [] {
    MatchContext made(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(made.get(), kMostBacktracking);
    pcre2_set_heap_limit(made.get(), kMostHeapKiB);
    return made;
  }();
  return limits.get();
}

}  // namespace

struct Regex::Code {
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
  std::string pattern;
};

Regex::Regex(const std::string& pattern) {
  const std::string translated = pcre2_pattern(pattern);
  // Oniguruma: ^ and $ match at each line of "\n".
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK | PCRE2_USE_OFFSET_LIMIT;
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto made = std::make_shared<Code>();
  made->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error, &at,
                             context.get());
  if (made->code == nullptr) throw Error(pcre2_message(error) + ", saw " + cut_text(pattern));
  pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE);  // where it is not possible, matching is slower
  made->pattern = pattern;
  code_ = std::move(made);
}

bool Regex::find(std::string_view text, size_t from, Match& match, Budget& budget) const {
  pcre2_match_data* data = own_match_data();
  const auto match_with = [&](uint32_t options) {
    return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, data, own_limits());
  };
  int found = PCRE2_ERROR_NOMATCH;
  size_t work = Budget::one_match;
  // From each place a match may look at all the rest in vain.
  for (bool is_last = false; !is_last && found == PCRE2_ERROR_NOMATCH;) {
    budget.spend(work);
    work = 16 * Budget::one_match;  // which looks at the clock
    size_t next = std::min(from + kStarts, text.size());
    while (next < text.size() && (text[next] & 0xc0) == 0x80) ++next;
    is_last = next == text.size();
    pcre2_set_offset_limit(own_limits(), is_last ? next : next - 1);
    found = match_with(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match_with(PCRE2_NO_JIT);  // whose stack is the heap
    from = next;
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    throw DataError("tokenizer: the pattern " + cut_text(code_->pattern) + " cannot be matched with a text of " +
                    std::to_string(text.size()) + " bytes: " + pcre2_message(found) + ". Cut the text into parts.");
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  match = {ends[0], ends[1]};
  return true;
}

}  // namespace levin::tokenizers
