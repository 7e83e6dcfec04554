// The searcher of each method.
#pragma once

#include <memory>

#include "levin/cli/sweep/searcher.h"

namespace levin {

/// `max_resource`: of asha and hyperband.
[[nodiscard]] std::unique_ptr<Searcher> make_searcher(const SweepOptions& options, const Space& space,
                                                      int64_t max_resource);

}  // namespace levin
