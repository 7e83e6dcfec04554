// What the fuzz targets share. A target calls expect() for what must hold of any input; a broken promise ends the
// process as a crash does, and libFuzzer keeps the input.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace levin::fuzz {

inline void expect(bool holds, std::string_view promise, std::string_view seen = "") {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n%.*s\n", static_cast<int>(promise.size()), promise.data(),
               static_cast<int>(seen.size()), seen.data());
  std::abort();
}

/// A message is for a terminal: one line, not endless, nothing that the terminal obeys.
inline void expect_good_message(std::string_view message, size_t most_bytes) {
  expect(!message.empty() && message.size() <= most_bytes, "a message is not empty and not endless", message);
  expect(std::none_of(message.begin(), message.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }),
         "a message holds no control characters", message);
}

/// With LEVIN_FUZZ_PLANTED set, a message deep in the reader counts as a crash: shows that the fuzzer gets there and
/// that a finding is reported.
inline void check_planted(std::string_view message, std::string_view part) {
  static const bool planted = std::getenv("LEVIN_FUZZ_PLANTED") != nullptr;
  expect(!planted || message.find(part) == std::string_view::npos, "planted, to be found", message);
}

}  // namespace levin::fuzz
