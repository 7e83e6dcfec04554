// Text for a terminal or a page: its width in columns, shortened, or quoted for a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace levin {

/// The columns that UTF-8 text takes: one for each character.
[[nodiscard]] size_t text_width(std::string_view text);

/// The bytes of the first `columns` characters.
[[nodiscard]] size_t bytes_of_columns(std::string_view text, size_t columns);

/// Adds spaces up to `columns`; wider text is unchanged.
[[nodiscard]] std::string padded_to(const std::string& text, size_t columns);

/// Text of at most `columns`: the first or the last characters, and an ellipsis for the others.
[[nodiscard]] std::string shortened(const std::string& text, size_t columns, bool keep_end);

/// `text` on one line, made safe to print (printable_text).
[[nodiscard]] std::string one_line_text(const std::string& text);

/// `text` as one argument of a POSIX shell, quoted where necessary.
[[nodiscard]] std::string shell_argument(const std::string& text);

/// Whether `text` has only letters that neither a shell nor sbatch treats specially.
[[nodiscard]] bool is_plain_argument(const std::string& text);

/// The arguments as a shell reads them, separated by spaces.
[[nodiscard]] std::string shell_command(const std::vector<std::string>& arguments);

}  // namespace levin
