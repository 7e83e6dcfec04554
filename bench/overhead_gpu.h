// bench_overhead on a GPU.
#pragma once

#include "rounds.h"

namespace bench::overhead {

int run_on_gpu(const Options& options);

}  // namespace bench::overhead
