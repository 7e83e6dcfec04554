#pragma once

namespace levin {

/// How many threads OpenMP uses for what the calling thread alone runs from here on. at::set_num_threads() would also
/// change the number of other threads. LibTorch sets a thread's number when it is first asked for it: ask before
/// (at::get_num_threads()).
void set_openmp_threads(int count);

}  // namespace levin
