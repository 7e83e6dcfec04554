#pragma once

namespace levin {

/// Sets how many threads OpenMP uses for the calling thread alone. at::set_num_threads() would also change the number
/// for other threads. LibTorch initializes a thread's number at its first use: call at::get_num_threads() before.
void set_openmp_threads(int count);

}  // namespace levin
