// log(sum(exp(x))) of rows in the CPU's memory.
#pragma once

#include <cstdint>

namespace levin::metrics {

/// For each row of a matrix: log(sum(exp(row))), added up in double. nan if a value is nan or infinite, all of them
/// -infinity included, as at::log_softmax gives.
template <class T>
void row_log_sum_exp(const T* x, int64_t rows, int64_t columns, double* into);

}  // namespace levin::metrics
