// What a user can do about a file that cannot be written.
#pragma once

#include <string>

namespace levin {

/// Returns a sentence for a failed write with this errno: "Free some space on its disk."
[[nodiscard]] std::string write_remedy(int error_number);

}  // namespace levin
