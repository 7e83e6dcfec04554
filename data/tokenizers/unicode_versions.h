// Where the tables of Hugging Face's tokenizers package are of another Unicode than utf8proc's.
#pragma once

#include <cstdint>

namespace levin::tokenizers {

enum class Table : uint8_t { punctuation, format, nonspacing_mark, mark, normal_form };

/// Whether the package has the character in the category and utf8proc does not, or the other way round; normal_form:
/// whether the package leaves it as it is, and has no combining class for it.
[[nodiscard]] bool differs_in_package(char32_t code, Table table);

}  // namespace levin::tokenizers
