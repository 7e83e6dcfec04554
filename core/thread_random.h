// A thread with its own random number generator registers it here, so that a computation repeated on another thread can
// draw the same numbers.
#pragma once

#include <functional>
#include <memory>

namespace levin {

/// During the result's lifetime, the calling thread draws the numbers that were drawn after the mark.
using RandomMark = std::function<std::shared_ptr<void>()>;

/// Marks the position of the calling thread's generator; empty: it draws from the process's generators.
[[nodiscard]] RandomMark mark_thread_random();

/// Sets `make_mark` for the calling thread; empty: none. Returns the previous one.
std::function<RandomMark()> set_thread_random(std::function<RandomMark()> make_mark);

}  // namespace levin
