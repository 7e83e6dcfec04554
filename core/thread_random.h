// A thread that draws its random numbers from elsewhere than the process's generators says so here, so that who repeats
// a computation on another thread can repeat its numbers too.
#pragma once

#include <functional>
#include <memory>

namespace levin {

/// Lets the calling thread draw, while the result lives, the numbers that were drawn after the mark was made.
using RandomMark = std::function<std::shared_ptr<void>()>;

/// Marks where the calling thread's numbers are now; empty: it draws from the process's generators.
[[nodiscard]] RandomMark mark_thread_random();

/// From here on `make_mark` is asked on the calling thread; empty: nobody. Returns who was asked before.
std::function<RandomMark()> set_thread_random(std::function<RandomMark()> make_mark);

}  // namespace levin
