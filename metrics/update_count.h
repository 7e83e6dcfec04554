// Whether code has updated metrics: a recorded step does not repeat what they do on the host. Internal.
#pragma once

#include <cstdint>

namespace levin::metrics {

/// How often the calling thread has called update() of any metric.
[[nodiscard]] int64_t updates_of_this_thread();

}  // namespace levin::metrics
