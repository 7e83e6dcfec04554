// PNG files.
#pragma once

#include <string>

#include "levin/loggers/log_values.h"

namespace levin {

/// The bytes of a PNG file. Throws Error where the image's size or channels do not fit its samples.
[[nodiscard]] std::string png_of(const LogImage& image);

}  // namespace levin
