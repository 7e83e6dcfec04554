// The message of an exception, for tests to match.
//
//   EXPECT_TRUE(holds(error_of([&] { trainer.fit(model, data); }), {"max_epochs", "Raise it"}));
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

namespace levin::test {

/// Returns the message that `action` throws, "" if it throws nothing. Exceptions other than `Expected` propagate.
template <class Expected = std::exception, class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  }
  return "";
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Succeeds if `text` contains all parts; otherwise fails with the name of the missing part.
inline ::testing::AssertionResult holds(const std::string& text, std::initializer_list<std::string> parts) {
  for (const auto& part : parts) {
    if (has(text, part)) continue;
    return ::testing::AssertionFailure() << "\"" << part << "\" is not in: " << (text.empty() ? "no error" : text);
  }
  return ::testing::AssertionSuccess();
}

inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) EXPECT_TRUE(holds(text, {part}));
}

}  // namespace levin::test
