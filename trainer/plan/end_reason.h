// Why a fit ended.
#pragma once

#include <string>

namespace levin {

class Trainer;

/// Returns why a fit that has not failed ended: the reason of the stop that was requested, "max_epochs (3) is reached",
/// "max_steps (100) is reached", or "there are no batches".
[[nodiscard]] std::string end_reason(const Trainer& trainer);

}  // namespace levin
