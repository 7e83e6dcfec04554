#include "levin/core/thread_random.h"

#include <utility>

namespace levin {

namespace {

std::function<RandomMark()>& maker() {
  thread_local std::function<RandomMark()> make_mark;
  return make_mark;
}

}  // namespace

RandomMark mark_thread_random() {
  return maker() ? maker()() : RandomMark();
}

std::function<RandomMark()> set_thread_random(std::function<RandomMark()> make_mark) {
  return std::exchange(maker(), std::move(make_mark));
}

}  // namespace levin
