// One HTML page about a sweep: self-contained, without JavaScript, for desktop and phone, dark and light.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/sweep/sweep_store.h"

namespace levin {

/// The page's text.
[[nodiscard]] std::string sweep_html(const SweepStore& store, const std::vector<Trial>& trials);

}  // namespace levin
