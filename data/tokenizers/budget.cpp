#include "levin/data/tokenizers/budget.h"

#include <cstdint>
#include <ctime>

#include "levin/core/options/error.h"

namespace levin::tokenizers {

namespace {

// Real tokenizers stay far below: a ligature may become 18 letters, whose bytes may become two each.
constexpr size_t kMaxGrowth = 16;
constexpr size_t kAlways = size_t{1} << 20;        // bytes or tokens, regardless of the input
constexpr size_t kPadding = size_t{1} << 17;       // tokens of each text
constexpr size_t kBytesOfToken = 256;              // on average
constexpr double kSeconds = 1, kPerByte = 20e-6;   // slow ones encode a megabyte in a second
constexpr size_t kBetweenLooks = size_t{1} << 20;  // bytes

// Processor time of this thread: a stopped or waiting process does not use up its budget.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_for(size_t bytes) {
  return kSeconds + static_cast<double>(bytes) * kPerByte;
}

}  // namespace

Budget Budget::of_text(size_t bytes, size_t texts) {
  const size_t most = kMaxGrowth * bytes + kAlways;
  return {bytes, "byte", " of text", most, most + texts * kPadding, seconds_for(bytes)};
}

Budget Budget::of_tokens(size_t tokens) {
  const size_t most = kBytesOfToken * tokens + kAlways;
  return {tokens, "token", "", most, SIZE_MAX, seconds_for(tokens)};
}

Budget Budget::of_file(size_t bytes) {
  return {bytes, "byte", " of a file with added tokens", kMaxGrowth * bytes + kAlways, SIZE_MAX, seconds_for(bytes)};
}

std::string Budget::input() const {
  return "tokenizer.json: " + count_of(static_cast<int64_t>(size_), unit_) + of_;
}

void Budget::fail_bytes() const {
  throw DataError(input() + " would become more than " + std::to_string(max_bytes_) +
                  " bytes of text. Fix what the file's normalizer, pre-tokenizer or decoder inserts.");
}

void Budget::fail_tokens() const {
  throw DataError(input() + " would become more than " + std::to_string(max_tokens_) +
                  " tokens. Fix the file's template, padding or affixes.");
}

void Budget::look_at_clock() {
  next_look_ = work_ + kBetweenLooks;
  const auto now = std::chrono::steady_clock::now();
  if (start_ == std::chrono::steady_clock::time_point()) {
    start_ = now;
    processor_start_ = processor_seconds();
    return;
  }
  // The second clock is slow to read, and never ahead of the first.
  if (std::chrono::duration<double>(now - start_).count() < max_seconds_) return;
  if (processor_seconds() - processor_start_ < max_seconds_) return;
  throw DataError(input() + " would take more than " + std::to_string(static_cast<int64_t>(max_seconds_)) +
                  " seconds of a processor. Fix the file's patterns and steps, or cut the text into parts.");
}

}  // namespace levin::tokenizers
