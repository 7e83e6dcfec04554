// Limits the output and the time of one tokenizer call: an untrusted tokenizer.json may double the text in each step or
// contain a pattern that needs hours. All stages of a call share one budget.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace levin::tokenizers {

class Budget {
 public:
  /// Returns the budget for encoding `texts` documents of `bytes` in total.
  static Budget of_text(size_t bytes, size_t texts = 1);
  /// Returns the budget for decoding `tokens` tokens.
  static Budget of_tokens(size_t tokens);
  /// Returns the budget for preparing the added tokens of a file of `bytes`.
  static Budget of_file(size_t bytes);

  /// Throws DataError if this many bytes of text, and the parts kept so far, exceed the limit.
  void check_bytes(size_t bytes) const {
    if (bytes > max_bytes_ - kept_bytes_) fail_bytes();
  }
  /// Counts the bytes of a part that has passed all steps.
  void keep_bytes(size_t bytes) {
    check_bytes(bytes);
    kept_bytes_ += bytes;
  }
  /// Throws DataError if this many tokens exceed the limit.
  void check_tokens(size_t tokens) const {
    if (tokens > max_tokens_) fail_tokens();
  }
  /// Counts work that takes about as long as reading `bytes` one by one, and sometimes looks at the clock. Throws
  /// DataError if the call takes too long.
  void spend(size_t bytes) {
    work_ += bytes;
    if (work_ >= next_look_) look_at_clock();
  }

  /// The work of one search for a pattern, for spend().
  static constexpr size_t one_match = size_t{1} << 16;

 private:
  Budget(size_t size, const char* unit, const char* of, size_t max_bytes, size_t max_tokens, double seconds)
      : size_(size), unit_(unit), of_(of), max_bytes_(max_bytes), max_tokens_(max_tokens), max_seconds_(seconds) {}
  [[nodiscard]] std::string input() const;
  [[noreturn]] void fail_bytes() const;
  [[noreturn]] void fail_tokens() const;
  void look_at_clock();

  size_t size_;
  const char* unit_;
  const char* of_;
  size_t max_bytes_;
  size_t max_tokens_;
  double max_seconds_;
  size_t kept_bytes_ = 0;
  size_t work_ = 0;
  size_t next_look_ = size_t{1} << 20;
  std::chrono::steady_clock::time_point start_ = {};  // of the clock, at the first look
  double processor_start_ = 0;
};

}  // namespace levin::tokenizers
