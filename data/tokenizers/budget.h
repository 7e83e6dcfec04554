// What one call of a tokenizer may make of its input, and how long it may take: a tokenizer.json from a stranger may
// double a text in each of its steps, or hold a pattern that needs hours. Every stage draws on the same budget.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace levin::tokenizers {

class Budget {
 public:
  /// For encoding `texts` texts of `bytes` in all.
  static Budget of_text(size_t bytes, size_t texts = 1);
  /// For decoding as many tokens.
  static Budget of_tokens(size_t tokens);
  /// For what is done to the added tokens of a file of `bytes` when it is read.
  static Budget of_file(size_t bytes);

  /// Throws DataError if a step makes a text of so many bytes, with those of earlier parts of the text.
  void check_bytes(size_t bytes) const {
    if (bytes > most_bytes_ - kept_bytes_) fail_bytes();
  }
  /// Counts the bytes of a part that all steps have been through.
  void keep_bytes(size_t bytes) {
    check_bytes(bytes);
    kept_bytes_ += bytes;
  }
  /// Throws DataError if there are so many tokens.
  void check_tokens(size_t tokens) const {
    if (tokens > most_tokens_) fail_tokens();
  }
  /// Counts work of about as long as looking at `bytes` one by one takes, and looks at the clock now and then. Throws
  /// DataError if the call takes too long.
  void spend(size_t bytes) {
    work_ += bytes;
    if (work_ >= next_look_) look_at_clock();
  }

  /// The work of looking for one match of a pattern, for spend().
  static constexpr size_t one_match = size_t{1} << 16;

 private:
  Budget(size_t size, const char* unit, const char* of, size_t most_bytes, size_t most_tokens, double seconds)
      : size_(size), unit_(unit), of_(of), most_bytes_(most_bytes), most_tokens_(most_tokens), most_seconds_(seconds) {}
  [[nodiscard]] std::string input() const;
  [[noreturn]] void fail_bytes() const;
  [[noreturn]] void fail_tokens() const;
  void look_at_clock();

  size_t size_;
  const char* unit_;
  const char* of_;
  size_t most_bytes_;
  size_t most_tokens_;
  double most_seconds_;
  size_t kept_bytes_ = 0;
  size_t work_ = 0;
  size_t next_look_ = size_t{1} << 20;
  std::chrono::steady_clock::time_point start_ = {};  // of the clock, at the first look
  double processor_start_ = 0;
};

}  // namespace levin::tokenizers
