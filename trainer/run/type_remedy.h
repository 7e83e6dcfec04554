// LibTorch's errors about types name two types and no way out. Internal.
#pragma once

#include <string>

namespace levin {

/// Returns what to do about LibTorch's error `text`, a sentence, with what separates it from the text; "" if the error
/// is about something else.
[[nodiscard]] std::string type_remedy(const std::string& text);

}  // namespace levin
