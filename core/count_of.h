// Counts in messages: "1 batch", "2 batches".
#pragma once

#include <cstdint>
#include <string>

namespace levin {

/// The number and its noun; `many` if the plural is not `one` with an s.
[[nodiscard]] std::string count_of(int64_t count, const std::string& one, const std::string& many = "");

}  // namespace levin
