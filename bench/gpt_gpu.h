// bench_gpt on a GPU.
#pragma once

#include "rounds.h"

namespace bench::gpt {

int run_on_gpu(const Options& options);

}  // namespace bench::gpt
